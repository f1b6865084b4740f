"""Commands of the pages about HTTP, the command line and the dialects, as they are written there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from page_reader import FENCE, ROOT, Reader, assert_fits
from programs import DRAGOMAN, Program, Programs

Reads = Callable[[str], Reader]
ID = re.compile(r"\b0[0-9a-f]{31}\b")
JQ = '#!/bin/sh\nexec sed \'s/.*"id":"\\([0-9a-f]*\\)".*/\\1/\'\n'  # the one filter that the page uses


@pytest.fixture
def reads(tmp_path: Path) -> Iterator[Reads]:
    """Creates the reader of a page, with a broker and a worker for `resize`, `report` and `echo`."""
    readers: list[Reader] = []

    def read(path: str) -> Reader:
        reader = Reader(tmp_path, path)
        readers.append(reader)
        reader.serve()
        services = [word for name in ("resize", "echo") for word in ("--service", name)]
        reader.dragoman("worker", "--exec", "cat", *services, "--connect", reader.environment["DRAGOMAN_URL"])
        reader.broker.prints("worker joined")
        (tmp_path / "cat.jpg").write_bytes(b"a cat")
        return reader

    yield read
    for each in readers:
        each.end_all()


def run(reader: Reader, command: str, id: str = "") -> str:
    """Run a command of the page; `id` takes the place of the id that the page shows. Returns its output."""
    return ends_as_shown(reader, start(reader, command, id), command)


def start(reader: Reader, command: str, id: str = "") -> Program:
    assert command in reader.page.shown
    reader.typed.add(command)
    return reader.start("sh", "-c", reader.at_home(ID.sub(id, command)))


def ends_as_shown(reader: Reader, program: Program, command: str) -> str:
    assert program.ends() == 0, (command, program.err)
    shown = reader.page.shown[command]
    if shown:
        assert_fits(program.out, re.sub(r'"worker":"\w+"', '"worker":"…"', ID.sub("…", shown)))
    return program.out


def test_http(reads: Reads) -> None:
    reader = reads("docs/http.md")
    call, delayed, enqueue, after, batch, once, many, schedule, events, token, header, services = reader.page.shown
    run(reader, call)
    assert (reader.folder / "small.jpg").read_bytes() == b"a cat"
    run(reader, delayed)
    run(reader, batch)
    run(reader, many)
    run(reader, schedule)
    assert reader.dragoman("pause", "resize").ends() == 0  # its events are to be seen from the first on
    first, again = ID.search(run(reader, once)), ID.search(run(reader, once))
    assert first is not None
    assert again is not None
    assert first[0] == again[0]
    job = ID.search(run(reader, enqueue))
    assert job is not None
    run(reader, after, job[0])
    watches = start(reader, events, job[0])
    watches.prints("^:")
    assert reader.dragoman("resume", "resize").ends() == 0
    ends_as_shown(reader, watches, events)
    run(reader, token)
    run(reader, header)
    [principal] = reader.folder.rglob("web.toml")
    url = "http://127.0.0.1:0?auth=token"
    protected = reader.dragoman("serve", url, "--set", f"access={principal.parent}", "--data", "memory")
    reader.ports["7480"] = protected.prints(r"http +http://127\.0\.0\.1:(\d+) ")
    run(reader, services)
    reader.has_typed_all()


def test_command_line(reads: Reads) -> None:
    reader = reads("docs/cli.md")
    (reader.folder / "jq").write_text(JQ)
    (reader.folder / "jq").chmod(0o755)
    reader.environment["PATH"] = f"{reader.folder}:{reader.environment['PATH']}"
    enqueue, result, retry, bulk, schedule, export, jobs, call = reader.page.shown
    job = run(reader, enqueue).strip()
    run(reader, result, job)
    assert (reader.folder / "small.jpg").read_bytes() == b"a cat"
    run(reader, retry)
    run(reader, bulk)
    run(reader, schedule)
    name, _, url = reader.at_home(export.removeprefix("export ")).partition("=")
    reader.environment[name] = url
    reader.typed.add(export)
    run(reader, jobs)
    assert run(reader, call) == "hello"
    reader.has_typed_all()


DIALECT_PAGES = sorted(path.name for path in (ROOT / "docs" / "dialects").glob("*.md") if path.name != "index.md")
PORT = re.compile(r"(?<=:)\d{4}\b|(?<=frontend=)\d{4}\b")


# Commands of the operator's page that need a machine of their own: an installation for all users, a damaged disk.
NOT_RUN = ("python3 -m venv", "cp deploy/", "systemctl", "dragoman store rescue", "dragoman serve\n")


OF_TENANTS = ("dragoman limit", "dragoman enqueue mail")


def test_operation(programs: Programs) -> None:
    text = (ROOT / "docs" / "operate.md").read_text()
    blocks = FENCE.findall(text)
    commands = [line for language, body in blocks if language == "sh" for line in body.splitlines()]
    [settings] = [body for language, body in blocks if language == "toml" and not body.startswith("# access/")]
    (programs.folder / "dragoman.toml").write_text(PORT.sub("0", settings))
    assert programs.dragoman("config", "--config", "dragoman.toml").ends() == 0
    serves = [each for each in commands if each.startswith('dragoman serve "')]
    configs = [each for each in commands if "dragoman config" in each]
    for command in serves:
        programs.dragoman(*_moved(command, programs.folder)[1:]).prints("is listening")
    for command in configs:
        program = programs.start("sh", "-c", command.replace("dragoman config", f"{DRAGOMAN} config"))
        assert program.ends() == 0, (command, program.err)
    watches = [each for each in commands if each.startswith(("dragoman top", "dragoman tail"))]
    _watch(programs, watches)
    acts = [each for each in commands if each.startswith(("dragoman retry", "dragoman quarantine", *OF_TENANTS))]
    for command in acts:  # by the address of the broker that was watched
        program = programs.start("sh", "-c", command.replace("dragoman", DRAGOMAN, 1))
        assert program.ends() == 0, (command, program.err)
    known = serves + configs + watches + acts
    left = [each for each in commands if each not in known and not f"{each}\n".startswith(NOT_RUN)]
    assert left == []


def _watch(programs: Programs, commands: list[str]) -> None:
    """Run commands that watch a broker: `top` prints one frame, `tail` a job of `ocr` that is cancelled."""
    broker = programs.dragoman("serve", "http://127.0.0.1:0", "--data", "memory")
    programs.environment["DRAGOMAN_URL"] = broker.prints(r"(http://\S+) +both")
    for command in commands:
        words = shlex.split(command, comments=True)[1:]
        program = programs.dragoman(*words)
        if words[0] == "top":
            assert program.ends() == 0, (command, program.err)
            continue
        while "cancelled" not in program.out:  # events before the stream is open are not seen
            job = programs.run("enqueue", "ocr", "x")
            assert job.ends() == 0, job.err
            assert programs.run("cancel", job.out.strip()).ends() == 0
        program.terminate()


def _moved(command: str, folder: Path) -> list[str]:
    """Return the words of a command, on free ports, and with sockets in this folder instead of /tmp and /run."""
    words = [PORT.sub("0", word) for word in shlex.split(command, comments=True)]
    for root in ("/tmp/", "/run/"):
        words = [each.replace(f"://{root}", f"://{folder}/") for each in words]
        words = [each.replace(quote(f"//{root}", safe=""), quote(f"//{folder}/", safe="")) for each in words]
    return words


@pytest.mark.parametrize("page", DIALECT_PAGES)
def test_listeners_of_a_dialect(programs: Programs, tmp_path_factory: pytest.TempPathFactory, page: str) -> None:
    text = (ROOT / "docs" / "dialects" / page).read_text()
    blocks = [body for language, body in FENCE.findall(text) if language == "sh"]
    commands = [line for body in blocks for line in body.splitlines() if line.startswith("dragoman serve")]
    assert commands, "a page of a dialect shows its listener"
    for command in commands:
        folder = tmp_path_factory.mktemp("s")  # a short path: that of a socket has at most 107 bytes
        programs.dragoman(*_moved(command, folder)[1:], "--data", "memory").prints("is listening")
