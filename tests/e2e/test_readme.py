"""The README's way in, as it is printed there: each command, each program, one after the other."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from programs import DRAGOMAN, PATIENCE, Program, Programs

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
FILES = dict(
    re.findall(r"`(\w+\.py)`[^`]*```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
)  # those with a name

# The broker of `make run`, but for ports that may be taken: each stands for one that is free.
LISTENERS = {
    "native+tcp://127.0.0.1:0": {"both": "7400"},
    "pingpong+tcp://127.0.0.1:0?frontend=0": {"workers": "7401", "callers": "7402"},
    "memodb+tcp://127.0.0.1:0": {"both": "7405"},
    "http://127.0.0.1:0": {"both": "7480"},
}


class Reader(Programs):
    """Somebody who types what they read."""

    is_preloaded = False

    def serve(self) -> None:
        self.broker = self.dragoman("serve", *LISTENERS, "--data", "memory", "--strict")
        self.ports = {}
        for url, places in LISTENERS.items():
            for who, port in places.items():
                dialect = url.partition(":")[0].partition("+")[0]
                self.ports[port] = self.broker.prints(rf"{dialect} +\w+://127.0.0.1:(\d+) +{who}")
        for name, text in FILES.items():
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(self._at_home(text))

    def type(self, command: str, more: str = "") -> Program:
        assert re.search(rf"^{re.escape(command)}$", README, re.MULTILINE), f"{command!r} is not in the README"
        first, *words = shlex.split(self._at_home(f"{command} {more}"))
        program = {".venv/bin/dragoman": DRAGOMAN, ".venv/bin/python": sys.executable, "curl": "curl"}[first]
        return self.start(program, *(["--silent"] if first == "curl" else []), *words)

    def works(self) -> None:
        """Wait until the broker has a worker."""
        self.broker.prints("worker joined")

    def reads(self, text: str) -> str:
        """What a program prints that calls."""
        self.write("caller.py", text)
        program = self.start(sys.executable, "caller.py")
        assert program.ends(4 * PATIENCE) == 0, program.err  # one of them has a thousand jobs, and the broker is strict
        return program.out

    def _at_home(self, text: str) -> str:
        return re.sub(r"\b74\d\d\b", lambda port: self.ports[port[0]], text)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    reader.serve()
    yield reader
    reader.end_all()


CALL = '.venv/bin/dragoman call default "hello" --connect pingpong+tcp://127.0.0.1:7402'
CALL_IN_MEMODB = '.venv/bin/dragoman call default "hello" --connect memodb+tcp://127.0.0.1:7405'


def test_every_program_of_the_readme_is_run_here() -> None:
    assert sorted(FILES) == ["reverse.py", "shout.py"]
    assert len(BLOCKS) == 6, "two at the top, shout.py, a caller for it, a background job, and reverse.py"


def test_the_two_programs_at_the_top(reader: Reader) -> None:
    """They were one block. Saved as one file, its end ran in the worker's child processes, too."""
    reader.write("ours.py", BLOCKS[0])
    worker = reader.start(sys.executable, "ours.py")
    reader.works()
    assert reader.reads(BLOCKS[1]) == "b'HELLO!'\nb'LATER!'\n"
    assert worker.out == ""


def test_the_advice_for_ports_that_are_taken(reader: Reader) -> None:
    """It ended with "data folder in use": whoever has taken the ports is a broker, most likely, and has that, too."""
    first = reader.dragoman("serve", "http://127.0.0.1:0")
    first.prints("is listening")
    found = re.search(r'`make run ARGS="(.*?)"`', README)
    assert found is not None
    second = reader.dragoman("serve", *re.sub(r":8\d{3}\b", ":0", found[1]).split())
    second.prints("is listening")
    assert (reader.folder / "data").is_dir()


def test_the_first_worker_and_its_callers(reader: Reader) -> None:
    reader.type(".venv/bin/dragoman worker shout:worker")
    reader.works()
    called = reader.type('.venv/bin/dragoman call shout "hello"', "--connect tcp://127.0.0.1:7400")  # the default
    assert (called.ends(), called.out) == (0, "HELLO!")
    said = reader.reads(BLOCKS[3]).splitlines()
    assert said == ["b'HELLO!'", *(f"b'{number}!'" for number in range(1000))]


def test_jobs_that_nobody_waits_for(reader: Reader) -> None:
    reader.type(".venv/bin/dragoman worker shout:worker")
    reader.works()
    assert reader.reads(BLOCKS[4]) == "b'LATER!'\n"
    door = "--connect http://127.0.0.1:7480"  # the default
    enqueued = reader.type('.venv/bin/dragoman enqueue shout "hello"', door)
    assert enqueued.ends() == 0, enqueued.err
    listed = reader.type(".venv/bin/dragoman jobs", door)
    assert listed.ends() == 0, listed.err
    assert enqueued.out.strip() in listed.out
    recurring = reader.type('.venv/bin/dragoman cron set nightly shout "wake up" --cron "30 2 * * *"', door)
    assert recurring.ends() == 0, recurring.err


def test_with_curl(reader: Reader) -> None:
    reader.type(".venv/bin/dragoman worker shout:worker")
    reader.works()
    called = reader.type('curl --data-binary "hello" http://127.0.0.1:7480/v1/call/shout')
    assert (called.ends(), called.out) == (0, "HELLO!")
    enqueued = reader.type('curl --data-binary "hello" "http://127.0.0.1:7480/v1/jobs?service=shout"')
    assert (enqueued.ends(), json.loads(enqueued.out)["service"]) == (0, "shout")
    services = reader.type("curl http://127.0.0.1:7480/v1/services")
    assert (services.ends(), [each["name"] for each in json.loads(services.out)["services"]]) == (0, ["shout"])


def test_any_program_is_a_worker_for_two_peoples(reader: Reader) -> None:
    reader.type('.venv/bin/dragoman worker --exec "tr a-z A-Z" --connect pingpong+tcp://127.0.0.1:7401')
    reader.works()
    for command in (CALL, CALL_IN_MEMODB):
        called = reader.type(command)
        assert (called.ends(), called.out) == (0, "HELLO")


def test_a_worker_that_imports_nothing_of_ours(reader: Reader) -> None:
    reader.type(".venv/bin/python reverse.py")
    reader.works()
    called = reader.type(CALL)
    assert (called.ends(), called.out) == (0, "olleh")
