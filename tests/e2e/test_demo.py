"""`dragoman demo`: every pair of dialects with real processes, and none of them left at the end."""

from __future__ import annotations

import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman import Client
from programs import DRAGOMAN, Program, Programs, until

PATIENCE = 120.0  # seconds, on a machine that does much else


def family(program: Program) -> set[int]:
    """The processes that the demo has started, with theirs."""
    found: set[int] = set()
    new = {program.pid}
    while new:
        lists = [each for pid in new for each in Path(f"/proc/{pid}/task").glob("*/children")]
        new = {int(word) for each in lists for word in each.read_text().split()} - found
        found |= new
    return found


def are_gone(processes: set[int]) -> bool:
    return not any(Path(f"/proc/{each}").exists() for each in processes)


def has_done(client: Client[bytes], service: str) -> bool:
    return any(each.name == service and each.ended.get("done") for each in client.services())


@pytest.fixture
def place(programs: Programs) -> Iterator[Path]:
    """The folder for temporary files of the demo: its path is short enough for Unix sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        programs.environment["TMPDIR"] = name
        yield Path(name)


def test_demo_is_right_goes_on_under_load_and_leaves_nothing(programs: Programs, place: Path) -> None:
    demo = programs.start(DRAGOMAN, "demo", "--quick", "--stay")
    until(lambda: "until Ctrl-C" in demo.out or demo.process.poll() is not None, "the end", PATIENCE)
    assert "42 of 42 pairs are right." in demo.out, demo.out + demo.err
    assert "Every caller got exactly one answer." in demo.out
    assert "Before:  It waits: no worker offers 'report'." in demo.out
    told = r"(?s)--- job -->.*is killed in the middle of the job.*x connection ended.*lost.*Attempt 2.*--- REPLY -->"
    assert re.search(told, demo.out), "the ladder is printed while it happens"
    assert "It is in quarantine" in demo.out
    url = demo.prints(r"Dashboard: (http://\S+)/\n")
    with Client(url) as client:
        until(lambda: has_done(client, "resize"), "jobs of the load are done", PATIENCE)
    processes = family(demo)
    assert len(processes) > 10
    demo.signal(signal.SIGINT)
    assert demo.ends(PATIENCE) == 0, demo.out + demo.err
    until(lambda: are_gone(processes), "the end of all processes")
    assert list(place.glob("dragoman-demo-*")) == []


def test_interrupted_demo_ends_all_of_its_processes(programs: Programs, place: Path) -> None:
    demo = programs.start(DRAGOMAN, "demo")
    until(lambda: "Dashboard: " in demo.out, "the broker listens", PATIENCE)
    processes = family(demo)
    assert processes
    demo.signal(signal.SIGINT)
    assert demo.ends(PATIENCE) == 130
    until(lambda: are_gone(processes), "the end of all processes")
    assert list(place.glob("dragoman-demo-*")) == []
