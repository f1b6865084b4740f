"""Secrets are planted in a run of everything, and searched for in all that it wrote (I19): output, logs, files, and
arguments and environments of processes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import zmq.auth
from zmq.utils import z85

from authority import Authority
from programs import PATIENCE, Program, Programs, until

PAYLOAD = "payload-b7c1e0"
PLANTED = PAYLOAD.encode()
WRONG = "dgm_wrong-0123456789-0123456789-0123456789-0123"


def forms_of(key_file: Path) -> list[bytes]:
    """All forms of a secret key of CURVE."""
    _, secret = zmq.auth.load_certificate(key_file)
    assert secret is not None
    raw = z85.decode(secret)
    return [secret, raw, raw.hex().encode(), raw.hex().upper().encode()]


def written(folder: Path, kept: set[Path]) -> Iterator[tuple[str, bytes]]:
    """All files of the run, but those that are there to hold a secret."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path not in kept:
            yield str(path.relative_to(folder)), path.read_bytes()


def processes(programs: list[Program]) -> Iterator[tuple[str, bytes]]:
    """Arguments and environments of running processes, and of those that they have started."""
    for program in programs:
        for pid in (program.pid, *program.children()):
            for kind in ("cmdline", "environ"):
                try:
                    yield f"{kind} of {program.words[1:3]}", Path(f"/proc/{pid}/{kind}").read_bytes()
                except (ProcessLookupError, FileNotFoundError, PermissionError):
                    pass


def test_no_secret_in_ps_logs_config_and_files(programs: Programs, tmp_path: Path) -> None:
    folder, data = programs.folder, programs.folder / "data"
    authority = Authority(tmp_path / "ca")
    server = authority.issue()
    programs.environment |= {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
    kept = {server.key}
    secrets: dict[str, list[bytes]] = {"wrong token": [WRONG.encode()]}

    def command(*words: object) -> Program:
        done = programs.run(*words)
        assert done.ends(4 * PATIENCE) == 0, done.err
        return done

    def token_of(name: str, *rights: str) -> Path:
        """Make a token, in a file, and in one with a header field for curl."""
        made = command("token", "new", name, *rights, "--data", data)
        kept.update((made._out, file := folder / f"{name}.token", header := folder / f"{name}.header"))
        for path, text in ((file, made.out), (header, f"Authorization: Bearer {made.out}")):
            path.touch(0o600)
            path.write_text(text)
        secrets[f"token of {name}"] = [made.out.strip().encode()]
        return file

    broker_key = command("keys", "new", "--broker", "--data", data).out.strip()
    gpu_key = command("keys", "new", "gpu-1").out.strip()
    command("keys", "allow", "gpu-1", gpu_key, "--work", "*", "--call", "*", "--data", data)
    for path in (data / "keys" / "broker.key_secret", folder / "config" / "dragoman" / "keys" / "gpu-1.key_secret"):
        secrets[path.name] = forms_of(path)
        kept.add(path)
    secrets["TLS key"] = [line.encode() for line in server.key.read_text().splitlines() if "-----" not in line]
    web, ops = token_of("web", "--call", "*", "--work", "*"), token_of("ops", "--administer", "*")
    wrong = folder / "wrong.token"
    wrong.touch(0o600)
    wrong.write_text(WRONG)
    kept.add(wrong)

    urls = (
        "tcp://127.0.0.1:0?auth=curve",
        f"native+tls://127.0.0.1:0?auth=token&{server.options}",
        "http://127.0.0.1:0?auth=token",
    )
    serve = ("--data", data, "--log", "json", "--log-level", "debug", "--record", folder / "run.rec")
    broker = programs.dragoman("serve", *urls, *serve)
    broker.prints("broker started")
    native, secure, http = (broker.prints(rf"({scheme}://127\.0\.0\.1:\d+)") for scheme in ("tcp", "tls", "http"))
    curve, tls = f"{native}?server_key={broker_key}&key=gpu-1", f"{secure}?ca={authority.cert}"
    token = web.read_text().strip()
    running = [
        programs.dragoman("worker", "--exec", "cat", "--service", "mail", "--connect", curve),
        programs.dragoman("worker", "--exec", "cat", "--service", "crop", "--connect", http, DRAGOMAN_TOKEN=token),
    ]
    broker.prints("worker joined", 2)
    for url, service in ((curve, "mail"), (f"{tls}&token_file={web}", "mail"), (f"{http}?token_file={web}", "crop")):
        assert command("call", service, PAYLOAD, "--connect", url).out == PAYLOAD
    for url in (f"{http}?token_file={wrong}", f"{tls}&token_file={wrong}"):
        assert programs.run("call", "mail", "x", "--connect", url).ends() == 3
    assert programs.run("call", "mail", "x", "--connect", f"{http}?token={token}").ends() == 2

    def curl(*words: object, name: str = "web") -> Program:
        done = programs.start("curl", "-sS", "-H", f"@{folder}/{name}.header", *words)
        assert done.ends(4 * PATIENCE) == 0, done.err
        return done

    jar, login = folder / "jar", folder / "login"
    login.write_text(f"token={token}")
    kept.update((jar, login))
    assert programs.start("curl", "-sS", "-c", jar, "-d", f"@{login}", f"{http}/login").ends() == 0
    secrets["cookie"] = [jar.read_text().split()[-1].encode()]
    curl("-d", f"@{wrong}", f"{http}/login")
    curl("-G", "--data-urlencode", f"token@{web}", f"{http}/v1/jobs")
    joined = curl("--json", '{"services": ["fax"]}', f"{http}/v1/workers")
    kept.add(joined._out)
    secrets["token of a worker"] = [re.findall(r'"token": *"([^"]+)"', joined.out)[0].encode()]
    for words in (("access", "show", "--json"), ("keys", "list"), ("token", "list")):
        command(*words, "--data", data)
    command("config", *urls, "--data", data)
    command("config", "--json", f"http://127.0.0.1:0?token={token}", "--data", data)
    command("pause", "mail", "--connect", f"{http}?token_file={ops}")
    found = list(processes([broker, *running]))
    broker.terminate()
    assert broker.ends(2 * PATIENCE) == 0
    for each in running:
        each.terminate()
    until(lambda: all(each.process.poll() is not None for each in running), "the workers end")

    files = list(written(folder, kept))
    leaks = [
        f"{what} in {where}"
        for where, content in (*found, *files)
        for what, forms in secrets.items()
        if any(form in content for form in forms) and not _is_own_environment(what, where)
    ]
    leaks += [f"payload in {name}" for name, content in files if name.endswith((".err", ".rec")) and PLANTED in content]
    assert leaks == []
    assert [name for name, content in files if name == "run.rec" and content], "the recording was searched"


def _is_own_environment(what: str, where: str) -> bool:
    """A user who sets DRAGOMAN_TOKEN puts it there. The kernel shows it to that user and root, as any variable."""
    return what == "token of web" and where.startswith("environ of ['worker', '--exec']")
