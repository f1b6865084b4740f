"""Log lines about acts of administrators: who, what, and from where (R151)."""

from __future__ import annotations

import json
import re
from pathlib import Path

from programs import Program, Programs, until


def acts(broker: Program) -> list[tuple[str, str, str, str]]:
    lines = [json.loads(line) for line in broker.err.splitlines() if line.startswith("{")]
    found = [line for line in lines if line["event"] == "administered"]
    return [(line["principal"], line["operation"], line["target"], line["peer"]) for line in found]


def test_every_act_of_an_administrator_has_a_line_that_says_from_where(programs: Programs, tmp_path: Path) -> None:
    """A bug: for a connection on this machine, the line said 'this connection'."""
    made = programs.run("token", "new", "ops", "--administer", "*", "--call", "*", "--data", "data")
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text(made.out)
    urls = ("tcp://127.0.0.1:0", f"ipc://{tmp_path}/b.sock", "http://127.0.0.1:0", "http://127.0.0.1:0?auth=token")
    broker = programs.dragoman("serve", *urls, "--data", "data", "--log", "json")
    native = broker.prints(r'"(tcp://127[^"]*)"')
    broker.prints("broker started")
    http, with_tokens = re.findall(r'"(http://127[^"]*)"', broker.err)
    by_token = f"{with_tokens}?token_file={token}"

    def command(*words: str, url: str) -> str:
        done = programs.run(*words, "--connect", url)
        assert done.ends() == 0, done.err
        return done.out.strip()

    job = command("enqueue", "mail", "x", url=http)
    for url in (native, f"ipc://{tmp_path}/b.sock", http, by_token):
        command("pause", "mail", url=url)
    command("resume", "mail", url=by_token)
    command("job", job, "--payload", url=by_token)
    command("cancel", job, url=by_token)
    command("purge", "mail", "--yes", url=by_token)
    command("access", "reload", url=by_token)
    command("jobs", url=by_token)
    near = r"127\.0\.0\.1:\d+"
    expected = [
        ("local", "pause", "mail", near),
        ("local", "pause", "mail", r"uid \d+, pid \d+"),
        ("local", "pause", "mail", near),
        ("ops", "pause", "mail", near),
        ("ops", "resume", "mail", near),
        ("ops", "payload", job, near),
        ("ops", "cancel", job, near),
        ("ops", "purge", "mail", near),
        ("ops", "reload access", "", near),
    ]
    found = until(lambda: acts(broker) if len(acts(broker)) >= len(expected) else None, "all acts are logged")
    assert [each[:3] for each in found] == [each[:3] for each in expected]
    assert [bool(re.fullmatch(row[3], each[3])) for each, row in zip(found, expected, strict=True)] == [True] * 9
