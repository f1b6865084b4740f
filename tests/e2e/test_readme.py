"""The README's way in, as it is printed there: each command, each program, one after the other."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from programs import DRAGOMAN, Program, Programs

README = (Path(__file__).parents[2] / "README.md").read_text()
PROGRAMS = dict(re.findall(r"`(\w+\.py)`[^`]*```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL))

# The broker of `make run`, but for ports that may be taken: each stands for one that is free.
LISTENERS = {
    "pingpong+tcp://127.0.0.1:0?frontend=0": {"workers": "7401", "callers": "7402"},
    "memodb+tcp://127.0.0.1:0": {"both": "7405"},
}


class Reader(Programs):
    """Somebody who types what they read."""

    def serve(self) -> None:
        broker = self.dragoman("serve", *LISTENERS, "--data", "memory", "--strict")
        self.ports = {}
        for url, places in LISTENERS.items():
            for who, port in places.items():
                dialect = url.partition("+")[0]
                self.ports[port] = broker.prints(rf"{dialect} +tcp://127.0.0.1:(\d+) +{who}")
        for name, text in PROGRAMS.items():
            (self.folder / name).write_text(self._at_home(text))

    def type(self, command: str) -> Program:
        assert re.search(rf"^{re.escape(command)}$", README, re.MULTILINE), f"{command!r} is not in the README"
        first, *words = shlex.split(self._at_home(command))
        return self.start({".venv/bin/dragoman": DRAGOMAN, ".venv/bin/python": sys.executable}[first], *words)

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
    assert sorted(PROGRAMS) == ["reverse.py", "shout.py"]
    assert len(re.findall(r"^```python$", README, re.MULTILINE)) == len(PROGRAMS)


def test_the_first_worker_is_any_program(reader: Reader) -> None:
    reader.type('.venv/bin/dragoman worker --exec "tr a-z A-Z" --connect pingpong+tcp://127.0.0.1:7401').prints(
        "connected"
    )
    called = reader.type(CALL)
    assert (called.ends(), called.out) == (0, "HELLO")


def test_a_python_function_is_called_by_two_peoples(reader: Reader) -> None:
    reader.type(".venv/bin/dragoman worker shout:shout --connect pingpong+tcp://127.0.0.1:7401").prints("connected")
    for command in (CALL, CALL_IN_MEMODB):
        called = reader.type(command)
        assert (called.ends(), called.out) == (0, "HELLO!")


def test_a_worker_that_imports_nothing_of_ours(reader: Reader) -> None:
    """Nothing tells when it has come: the call waits for it, as PingPong's do."""
    reader.type(".venv/bin/python reverse.py")
    called = reader.type(CALL)
    assert (called.ends(), called.out) == (0, "olleh")
