"""The commands of batches and groups, as users type them, over native and HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from dragoman import LocalBroker
from dragoman.testing.workers import WorkerThread
from programs import Program, Programs

UNKNOWN = "0" * 32


def upper(text: bytes) -> bytes:
    if text == b"fail":
        raise ValueError("as requested")
    return text.upper()


@pytest.fixture(params=["native", "http"])
def broker(programs: Programs, request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    with LocalBroker("tcp://127.0.0.1:0", "http://127.0.0.1:0") as broker:
        programs.environment["DRAGOMAN_URL"] = broker.urls[request.param]
        worker = WorkerThread(broker, (), {"upper": upper})
        yield broker
        worker.close()


def run(programs: Programs, *words: str, code: int = 0) -> Program:
    program = programs.run(*words)
    assert program.ends() == code, (words, program.out, program.err)
    return program


def test_lines_of_a_file_are_jobs_and_a_group(programs: Programs, broker: LocalBroker) -> None:
    lines = programs.folder / "lines.txt"
    lines.write_bytes(b"one\ntwo\r\n\nthree")
    ids = run(programs, "enqueue", "upper", "--lines", str(lines), "--priority", "9").out.split()
    assert len(ids) == 4
    assert run(programs, "result", ids[1], "--wait", "60").out == "TWO"
    group = run(programs, "enqueue", "upper", "--lines", str(lines), "--group").out.strip()
    assert re.fullmatch("[0-9a-f]{32}", group)
    assert run(programs, "group", group, "--results", "--wait", "60").out == "ONE\nTWO\n\nTHREE\n"
    shown = run(programs, "group", group).out
    assert re.search(r"^progress +4 of 4$", shown, re.MULTILINE)
    view = json.loads(run(programs, "group", group, "--json").out)
    assert (view["complete"], view["done"], view["services"]) == (True, 4, ["upper"])
    listed = run(programs, "jobs", "--group", group, "--json").out.splitlines()
    assert [json.loads(each)["group"] for each in listed] == [group] * 4
    job = run(programs, "job", json.loads(listed[0])["id"]).out
    assert re.search(rf"^group +{group}$", job, re.MULTILINE)


def test_jobs_come_after_a_group(programs: Programs, broker: LocalBroker) -> None:
    lines = programs.folder / "lines.txt"
    lines.write_bytes(b"one\nfail\n")
    words = ("enqueue", "upper", "--lines", str(lines), "--group", "--attempts", "1")
    group = run(programs, *words).out.strip()
    failed = run(programs, "group", group, "--results", "--wait", "60", code=1)
    assert failed.out == "ONE\n"
    assert "job 1 of the group: failed: ValueError: as requested" in failed.err
    after = run(programs, "enqueue", "upper", "x", "--after", group).out.strip()
    shown = run(programs, "job", after).out
    assert re.search(rf"^after +{group}$", shown, re.MULTILINE)
    assert "ended cancelled: job" in run(programs, "why", after).out
    anyway = run(programs, "enqueue", "upper", "x", "--after", group, "--after-failure", "run").out.strip()
    assert run(programs, "result", anyway, "--wait", "60").out == "X"
    again = run(programs, "enqueue", "upper", "--after", anyway, "--input", "result", "--wait", "60").out
    assert again == "X"


def test_group_is_cancelled_and_told_as_it_is(programs: Programs, broker: LocalBroker) -> None:
    lines = programs.folder / "lines.txt"
    lines.write_bytes(b"one\ntwo\n")
    group = run(programs, "enqueue", "nobody", "--lines", str(lines), "--group").out.strip()
    waiting = run(programs, "group", group, "--wait", "0.1", code=4)
    assert f"group {group} is not complete: 0 of 2" in waiting.err
    assert re.search(r"^says +2 of 2, 2 cancelled$", run(programs, "cancel-group", group).out, re.MULTILINE)
    assert "2 cancelled" in run(programs, "group", group).out


MISTAKES: list[tuple[tuple[str, ...], int, str]] = [
    (("group", UNKNOWN), 1, f"no group has id {UNKNOWN}"),
    (("group", "17"), 2, "a group's id has 32 lower-case hex digits"),
    (("group", UNKNOWN, "--results", "--json"), 2, "use one of --results and --json"),
    (("enqueue", "upper", "--group"), 2, "--group needs --lines FILE"),
    (("enqueue", "upper", "x", "--lines", "f", "--key", "k"), 2, "--key, DATA cannot be combined with --lines"),
    (("enqueue", "upper", "--lines", "nowhere.txt"), 2, "nowhere.txt cannot be read: No such file or directory"),
    (("enqueue", "upper", "--lines", "/dev/null"), 2, "the file is empty"),
    (("enqueue", "upper", "--after", UNKNOWN), 1, f"after: no job or group has id {UNKNOWN}"),
]


def test_mistakes_are_named(programs: Programs, broker: LocalBroker) -> None:
    for words, code, message in MISTAKES:
        assert message in run(programs, *words, code=code).err, words
