"""Dragoman's own clients and workers that a broker rejects: they end with 3, and name the setting to look at (R155)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from authority import Authority
from case_tables import check_every_row
from programs import PATIENCE, Program, Programs
from users import ALICE

WORKER = ("worker", "--exec", "cat", "--service", "default")
CALL = ("call", "default", "x")


def places_of(broker: Program) -> dict[str, str]:
    """Return host and port of each listener, by dialect and role."""
    return {
        name: broker.prints(rf"{dialect} +\w+://(\S+) +{role}")
        for name, dialect, role in (
            ("native", "native", "both"),
            ("pingpong", "pingpong", "callers"),
            ("pingpong workers", "pingpong", "workers"),
            ("powerhose", "powerhose", "callers"),
            ("memodb", "memodb", "both"),
            ("majordomo", "majordomo", "both"),
            ("http", "http", "both"),
        )
    }


def serve(programs: Programs, tls: str = "", *more: str) -> Program:
    """Start a broker with a listener of each dialect. `tls`: options of TLS, which all of them use then."""
    plain, secure = ("tcp", "http") if not tls else ("tls", "https")
    tls = tls or "loopback=owner"
    urls = (
        f"native+{plain}://127.0.0.1:0?{tls}",
        f"pingpong+{plain}://127.0.0.1:0?frontend=0&{tls}",
        f"powerhose+{plain}://127.0.0.1:0?frontend=0&{tls}",
        f"memodb+{plain}://127.0.0.1:0?{tls}",
        f"majordomo+{plain}://127.0.0.1:0?{tls}",
        f"{secure}://127.0.0.1:0?{tls}",
    )
    return programs.dragoman("serve", *urls, *more, "--log", "human")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may enter."""
    with tempfile.TemporaryDirectory(prefix="dragoman-refused-") as path:
        os.chmod(path, 0o711)
        yield Path(path)


def test_another_user_is_told_so_in_every_dialect(programs: Programs, folder: Path) -> None:
    """A bug: HTTP clients got no reason, and an operation was repeated for ever."""
    socket = f"ipc://{folder}/b.sock"
    broker = serve(programs, "", socket, "--data", "memory")
    at = places_of(broker)
    hint = f"A broker that runs as another user than this program (uid {ALICE}) admits it only with loopback=anyone"
    reason = f"uid {ALICE} is not the broker's user (uid {os.getuid()}), nor root, nor in the access table; run "
    refused = f"the broker at {at['http']} does not admit this client: {reason}"
    rows = [
        (CALL, f"tcp://{at['native']}", hint),
        (CALL, f"pingpong+tcp://{at['pingpong']}", hint),
        (CALL, f"powerhose+tcp://{at['powerhose']}", hint),
        (CALL, f"memodb+tcp://{at['memodb']}", hint),
        (CALL, f"majordomo+tcp://{at['majordomo']}", hint),
        (CALL, f"http://{at['http']}", refused),
        (("jobs",), f"http://{at['http']}", refused),
        (("jobs",), f"tcp://{at['native']}", hint),
        (WORKER, f"http://{at['http']}", f"the broker at {at['http']} does not admit this worker: {reason}"),
        (CALL, socket, f"this user (uid {ALICE}) may not open the socket; run this program as the user of the broker"),
    ]

    def check(words: tuple[str, ...], url: str, sentence: str) -> None:
        refused = programs.dragoman_as(ALICE, *words, "--connect", url)
        assert (refused.ends(), refused.out) == (3, "")
        assert sentence in refused.err

    check_every_row(check, rows)
    worker = programs.dragoman_as(ALICE, *WORKER, "--connect", f"tcp://{at['native']}")
    worker.prints("trying again in", 2)  # the broker may admit it later
    assert hint in worker.err


def test_a_certificate_without_a_principal_is_named_in_every_dialect(programs: Programs, tmp_path: Path) -> None:
    """A bug: where a dialect has no message for it, workers reconnected for ever, and a MemoDB call waited for ever."""
    authority = Authority(tmp_path / "ca")
    stranger = authority.issue("stranger", "subjectAltName=DNS:stranger")
    known = authority.issue("ops", "subjectAltName=DNS:ops.example")
    rights = ("--call", "*", "--work", "*")
    allowed = programs.run("access", "allow", "ops", "--tls-name", "ops.example", *rights, "--data", "data")
    assert allowed.ends() == 0
    tls = f"{authority.issue().options}&client_ca={authority.cert}"
    at = places_of(serve(programs, tls, "--data", "data"))
    silent = "closed the connection after the TLS handshake: it probably speaks another dialect, or "
    advice = f"has no principal for the certificate in {stranger.cert} (cert=): run `dragoman access allow NAME "
    told = "this broker has no principal for the certificate of this client"
    rows = [
        (CALL, "tls", "native", told),
        (CALL, "pingpong+tls", "pingpong", silent + advice),
        (CALL, "powerhose+tls", "powerhose", silent + advice),
        (CALL, "memodb+tls", "memodb", silent + advice),
        (CALL, "majordomo+tls", "majordomo", silent + advice),
        (CALL, "https", "http", f"the broker at {at['http']} {advice}"),
        (WORKER, "tls", "native", told),
        (WORKER, "pingpong+tls", "pingpong workers", silent + advice),
        (WORKER, "memodb+tls", "memodb", silent + advice),
        (WORKER, "majordomo+tls", "majordomo", silent + advice),
        (WORKER, "https", "http", f"the broker at {at['http']} {advice}"),
    ]

    def check(words: tuple[str, ...], scheme: str, place: str, sentence: str) -> None:
        url = f"{scheme}://{at[place]}?ca={authority.cert}&{stranger.options}"
        refused = programs.run(*words, "--connect", url)
        assert (refused.ends(), refused.out) == (3, "")
        assert sentence in refused.err

    check_every_row(check, rows)
    url = f"memodb+tls://{at['memodb']}?ca={authority.cert}&{known.options}"
    programs.dragoman(*WORKER, "--connect", url)
    call = programs.dragoman("call", "default", "x", "--connect", url, "--timeout", PATIENCE)
    assert (call.ends(), call.out) == (0, "x")


def test_a_host_name_that_the_broker_does_not_serve_is_named(programs: Programs) -> None:
    """A bug: the client said that it had reached another program. Every address of the machine is served."""
    broker = programs.dragoman("serve", "http://0.0.0.0:0?insecure=true", "--data", "memory")
    port = broker.prints(r"http://0\.0\.0\.0:([1-9]\d*)")
    for words in (CALL, WORKER):
        refused = programs.run(*words, "--connect", f"http://[::ffff:127.0.0.1]:{port}")
        assert refused.ends() == 3
        assert "does not serve this host name: connect by another name or address of the broker, or add" in refused.err
    for host in ("127.0.0.1", "127.0.0.2", "localhost"):
        assert programs.run("jobs", "--connect", f"http://{host}:{port}").ends() == 0


def test_an_http_worker_without_the_right_ends(programs: Programs, tmp_path: Path) -> None:
    """As a native one. A bug: it tried again and again."""
    made = programs.run("token", "new", "web", "--call", "*", "--data", "data")
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text(made.out)
    broker = programs.dragoman("serve", "http://127.0.0.1:0?auth=token", "--data", "data")
    url = broker.prints(r"(http://127\.0\.0\.1:\d+)")
    refused = programs.run(*WORKER, "--connect", f"{url}?token_file={token}")
    assert refused.ends() == 3
    assert "does not allow this worker: web may not work for 'default'" in refused.err
