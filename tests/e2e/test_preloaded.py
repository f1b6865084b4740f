"""Commands started by the tests' fork server behave as those started by a shell."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from case_tables import check_every_row
from preloaded import DRAGOMAN, Process, start_anew, starter
from programs import PATIENCE, state, until

FACTS = """
import gc, json, os, signal, sys, threading

def stream(each):
    told = each.fileno(), each.encoding, each.errors, each.line_buffering, each.write_through
    return [*told, type(each.buffer).__name__]

facts = {
    "arguments": sys.argv,
    "original arguments": sys.orig_argv[1:],
    "main": sys.modules["__main__"].__file__,
    "path": sys.path,
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "leads its session": os.getsid(0) == os.getpgrp() == os.getpid(),
    "handlers": [repr(signal.getsignal(each)) for each in (2, 13, 15, 17)],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "open": [each for each in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{each}")],
    "input": sys.stdin.buffer.read().decode(),
    "streams": [stream(each) for each in (sys.stdin, sys.stdout, sys.stderr)],
    "threads": threading.active_count(),
    "collects": gc.isenabled(),
}
print(json.dumps(facts))
"""


def files(folder: Path, name: str) -> tuple[Path, Path, Path]:
    made = folder / f"{name}.in", folder / f"{name}.out", folder / f"{name}.err"
    made[0].write_text("what is given")
    return made


@pytest.fixture
def environment() -> dict[str, str]:
    return os.environ | {"PYTHONUNBUFFERED": "1", "TZ": "Asia/Tokyo", "ONLY": "here"}


def test_a_command_finds_what_a_new_interpreter_would(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "facts.py").write_text(FACTS)
    words = [DRAGOMAN, "worker", "facts:f", "--threads", "1", "--connect", "tcp://127.0.0.1:1"]

    def facts(start: Any, name: str) -> Any:
        process = start(words, tmp_path, files(tmp_path, name), environment)
        assert process.wait(PATIENCE) == 2, (tmp_path / f"{name}.err").read_text()
        assert type(process) is (Process if name == "forked" else process.__class__)
        return json.loads((tmp_path / f"{name}.out").read_text()), (tmp_path / f"{name}.err").read_text()

    assert facts(starter().start, "forked") == facts(start_anew, "new")


def test_exit_codes_and_signals_are_told(tmp_path: Path, environment: dict[str, str]) -> None:
    done = starter().start([DRAGOMAN, "--version"], tmp_path, files(tmp_path, "version"), environment)
    assert (done.wait(), done.poll(), done.returncode) == (0, 0, 0)
    words = [DRAGOMAN, "worker", "--exec", "cat", "--connect", f"ipc://{tmp_path}/nobody"]
    killed = starter().start(words, tmp_path, files(tmp_path, "killed"), environment)
    assert killed.poll() is None
    os.killpg(killed.pid, signal.SIGKILL)
    until(lambda: state(killed.pid) == "Z", "it has ended")
    os.kill(killed.pid, signal.SIGTERM)  # nobody has asked for its exit code: the process is still known
    assert (killed.wait(PATIENCE), killed.poll()) == (-signal.SIGKILL, -signal.SIGKILL)
    until(lambda: not Path(f"/proc/{killed.pid}").exists(), "nothing is left of it")


ENDS = """
import atexit, sys, threading, time

class Cycle:
    def __init__(self):
        self.itself = self

    def __del__(self):
        print("an object is finalized")

def later():
    threading.main_thread().join()
    print("a thread has ended")

Cycle()
atexit.register(print, "the process ends")
{end}
raise Exception("its import fails")
"""
WAYS_TO_END = {  # the last line of the module, and the exit code
    "nothing is left": ("", 2),
    "a thread": ("threading.Thread(target=later).start()", 2),
    "a daemon": ("threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()", 2),
    "a function that fails": ("atexit.register(divmod, 1, 0)", 2),
    "output that cannot be written": ("sys.stdout = open('/dev/full', 'w'); print('lost')", 120),
}


def test_a_command_ends_as_in_a_new_interpreter(tmp_path: Path, environment: dict[str, str]) -> None:
    words = [DRAGOMAN, "worker", "ends:f", "--threads", "1", "--connect", "tcp://127.0.0.1:1"]

    def ends(start: Any, name: str) -> tuple[int, str, str]:
        process = start(words, tmp_path, files(tmp_path, name), environment)
        code = process.wait(PATIENCE)
        return code, (tmp_path / f"{name}.out").read_text(), (tmp_path / f"{name}.err").read_text()

    def check(name: str, end: str, code: int) -> None:
        (tmp_path / "ends.py").write_text(ENDS.format(end=end))
        new = ends(start_anew, "new")
        assert new[0] == code, new
        assert ends(starter().start, "forked") == new

    check_every_row(check, [(name, *row) for name, row in WAYS_TO_END.items()])


def test_variables_that_python_reads_at_its_start_need_a_new_interpreter(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    environment["PYTHONPATH"] = str(tmp_path)
    (tmp_path / "click.py").write_text("print('from that folder')\nraise SystemExit(7)\n")
    started = starter().start([DRAGOMAN, "--version"], tmp_path, files(tmp_path, "new"), environment)
    assert started.wait(PATIENCE) == 7
    assert (tmp_path / "new.out").read_text() == "from that folder\n"
