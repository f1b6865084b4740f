"""The client side without what only Linux and macOS have: its processes run with these parts of the system hidden.

There is no Windows or macOS here. `masks/sitecustomize.py` hides from the modules of Dragoman what those systems lack.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import client_suite
from case_tables import check_every_row
from dragoman import Client, LocalBroker, using
from dragoman.sdk.event_loop import stopped_by_signals
from programs import PATIENCE, Program, Programs

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MASKS = ROOT / "tests" / "masks"
MASKED = {"PYTHONPATH": f"{MASKS}{os.pathsep}{HERE}", "HIDDEN": "system"}

# Statements that must fail in a module of Dragoman.
HIDDEN = [
    "import fcntl",
    "import termios",
    "from grp import getgrnam",
    "import uvloop",
    *(
        f"from os import {name}"
        for name in ("fork", "setsid", "killpg", "geteuid", "O_NOFOLLOW", "O_CLOEXEC", "waitid")
    ),
    *(f"from signal import {name}" for name in ("SIGUSR1", "SIGHUP", "SIGWINCH", "SIGKILL", "pthread_sigmask")),
    *(f"from socket import {name}" for name in ("AF_UNIX", "AF_NETLINK", "SO_PEERCRED")),
    "from time import CLOCK_BOOTTIME",
    "from select import poll",
    "import os; os.open('made-up', os.O_RDONLY, dir_fd=0)",
    "import os; os.open('.', os.O_RDONLY)",
    "import ctypes; ctypes.CDLL(None).prctl",
    "import socket; socket.socketpair()[0].sendmsg([b'.'])",
    "import multiprocessing; multiprocessing.get_context('forkserver')",
    "import asyncio; asyncio.new_event_loop().add_reader(0, print)",
    "import asyncio; asyncio.SelectorEventLoop().add_reader(os.pipe()[0], print)",
    "import asyncio, signal; asyncio.SelectorEventLoop().add_signal_handler(signal.SIGINT, print)",
]
TRYING = """
import dragoman, os, sys
for statement in sys.stdin.read().splitlines():
    for name in ("dragoman.made_up", "made_up"):
        try:
            exec(statement, {"__name__": name, "os": os})
        except Exception as error:
            print(name, type(error).__name__, statement)
"""
IMPORTING = """
import importlib, pkgutil
for part in "access carriers cli dialects integrations operations sdk streams tasks testing".split():
    package = importlib.import_module("dragoman." + part)
    for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        try:
            importlib.import_module(each.name)
        except Exception as error:
            print(each.name, error)
"""
# Modules of the broker's machine, and of programs in place of functions.
NEED_MORE = {"dragoman.cli.running_broker", "dragoman.sdk.program_pool", "dragoman.testing.local"}


def run(*words: str, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        env=os.environ | MASKED | environment,
        cwd=ROOT,
        input=given,
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_the_mask_hides_parts_of_the_system_from_dragoman_alone() -> None:
    done = run("-c", TRYING, given="\n".join(HIDDEN))
    assert done.returncode == 0, done.stderr
    tried = [line.split(" ", 2) for line in done.stdout.splitlines()]
    assert ["dragoman.made_up", "ModuleNotFoundError", "import fcntl"] in tried
    assert {statement for name, _, statement in tried if name == "dragoman.made_up"} == set(HIDDEN)
    assert ["made_up", "ModuleNotFoundError", "import fcntl"] not in tried


def test_every_module_of_clients_is_imported_without_parts_of_the_system() -> None:
    """R265. A bug: 71 of them were not, because they import fcntl or termios, or ask for a function of fork."""
    done = run("-c", IMPORTING)
    assert done.returncode == 0, done.stderr
    assert {line.split()[0] for line in done.stdout.splitlines()} == NEED_MORE, done.stdout


# ---------------------------------------------------------------- the suite


def passes(hidden: str, count: int, *, with_broker: bool) -> None:
    """Run this part of the tests of clients. At least so many of them must pass, and the others be left out."""
    words = ["-m", "pytest", "-p", "no:xdist", *client_suite.arguments(with_broker=with_broker)]
    done = run(*words, HIDDEN=hidden, PYTEST_ADDOPTS="")
    assert done.returncode == 0, done.stdout[-10_000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= count


def test_tests_of_clients_pass_without_parts_of_the_system() -> None:
    passes("system system-of-tests", 700, with_broker=False)


def test_tests_of_clients_that_need_a_broker_pass_without_parts_of_the_system() -> None:
    """The broker in their process has them."""
    passes("system-of-clients", 100, with_broker=True)


# ---------------------------------------------------------------- workers and commands


@pytest.fixture
def broker(programs: Programs, tmp_path: Path) -> Iterator[LocalBroker]:
    """A broker that has all of this system."""
    with LocalBroker("tcp://127.0.0.1:0", "http://127.0.0.1:0") as broker:
        programs.environment |= MASKED | {"DRAGOMAN_URL": broker.urls["native"], "XDG_CONFIG_HOME": str(tmp_path)}
        yield broker


def masked(programs: Programs, *words: object, given: bytes = b"") -> Program:
    """Start `dragoman` in a new interpreter, which then hides parts of the system."""
    return programs.start(sys.executable, "-m", "dragoman", *words, given=given)


def test_worker_without_parts_of_the_system_runs_jobs_in_processes_and_in_its_loop(
    programs: Programs, broker: LocalBroker
) -> None:
    """Its children are spawned, their ends are noticed by threads, and it stops by a signal that wakes its loop."""
    worker = masked(programs, "worker", "system_tasks", "--processes", "1")
    worker.prints("connected to")
    with Client(broker.url) as client, using(client):
        import system_tasks

        in_process, is_child = system_tasks.system.call()
        assert (in_process, is_child) == (["nt", "win32", "no fork", "no Unix sockets"], True)
        assert system_tasks.system_of_loop.call()[0] == in_process
        assert system_tasks.repeat.call("x", 3_000_000) == "x" * 3_000_000
        lost = system_tasks.end.submit()
        assert "the child process ended with exit code 7" in str(lost.exception(timeout=60))
        assert system_tasks.repeat.call("y", 2) == "yy"  # by a new child
        slow = system_tasks.until_cancelled.enqueue()
        worker.prints("it runs")
        assert slow.cancel()
        assert system_tasks.repeat.call("z", 1) == "z"
    worker.terminate()
    assert worker.ends() == 0
    assert "leaving: drained" in worker.err
    assert "Traceback" not in worker.err


def test_worker_without_parts_of_the_system_runs_jobs_in_threads(programs: Programs, broker: LocalBroker) -> None:
    worker = masked(programs, "worker", "system_tasks", "--threads", "2", "--connect", broker.urls["http"])
    worker.prints("connected to")
    with Client(broker.url) as client, using(client):
        import system_tasks

        assert system_tasks.system.call() == (["nt", "win32", "no fork", "no Unix sockets"], False)
    worker.signal(signal.SIGINT)
    assert worker.ends() == 0


@pytest.mark.parametrize("hidden", ["system", "macos"])
def test_child_ends_with_a_worker_that_was_killed(programs: Programs, broker: LocalBroker, hidden: str) -> None:
    """R264: the job of a killed worker may run elsewhere. Where the kernel does not end its children, they do it."""
    programs.environment["HIDDEN"] = hidden
    worker = masked(programs, "worker", "system_tasks", "--processes", "1")
    worker.prints("connected to")
    with Client(broker.url) as client, using(client):
        import system_tasks

        system_tasks.unaware.enqueue()
        child = int(worker.prints(r"it runs in (\d+)"))
        handle = os.pidfd_open(child)
        worker.kill()
        assert select.select([handle], [], [], PATIENCE)[0], "the child goes on"
        os.close(handle)


class LoopWithoutSignals(asyncio.AbstractEventLoop):
    """A loop that handles no signals, and keeps what it is told."""

    def __init__(self) -> None:
        self.watched: list[socket.socket] = []
        self.called: list[Callable[..., object]] = []

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:
        self.watched.append(fd)

    def remove_reader(self, fd: Any) -> bool:
        self.watched.remove(fd)
        return True

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
        self.called.append(callback)


def test_signal_wakes_a_loop_that_handles_none() -> None:
    """On Windows a signal does not end the wait for sockets, so a worker would have stopped at the next message."""
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    loop = LoopWithoutSignals()
    with stopped_by_signals(loop, print):
        signal.raise_signal(signal.SIGTERM)
        assert loop.called == [print]
        assert loop.watched[0].recv(100) == bytes([signal.SIGTERM])
    assert loop.watched == []
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before
    assert signal.set_wakeup_fd(-1) == -1


def test_worker_as_on_macos_runs_jobs_in_processes_and_programs(programs: Programs, broker: LocalBroker) -> None:
    """Its children are forked; the memory of each is asked for by getrusage."""
    programs.environment["HIDDEN"] = "macos"
    worker = masked(programs, "worker", "system_tasks", "--processes", "1", "--max-memory", "100GiB")
    worker.prints("connected to")
    program = masked(programs, "worker", "--exec", "tr a-z A-Z", "--service", "upper")
    program.prints("connected to")
    with Client(broker.url) as client, using(client):
        import system_tasks

        assert system_tasks.system.call() == (["posix", "darwin", "a fork", "Unix sockets"], True)
        assert system_tasks.repeat.call("x", 3_000_000) == "x" * 3_000_000
        assert client.call("upper", b"loud") == b"LOUD"
    for each in (worker, program):
        each.terminate()
        assert each.ends() == 0
    with LocalBroker(f"ipc://{programs.folder / 'b.sock'}") as unix:
        command = masked(programs, "services", "--connect", unix.url.replace("native+", ""))
        assert command.ends() == 0, command.err


def test_commands_work_without_parts_of_the_system(programs: Programs, broker: LocalBroker) -> None:
    """A bug: a character that the encoding of a pipe on Windows does not have ended `dragoman top` with a traceback."""
    masked(programs, "worker", "system_tasks", "--threads", "1").prints("connected to")
    programs.environment["PYTHONIOENCODING"] = "cp1252"

    def check(words: str, given: bytes, printed: str) -> None:
        command = masked(programs, *words.split(), given=given)
        assert command.ends() == 0, command.err
        assert re.search(printed, command.out), command.out

    rows = [
        ("call repeat -", b'{"text": "ab", "count": 2}', '^"abab"$'),
        ('enqueue repeat {"text":"c","count":3} --wait 60', b"", '"ccc"'),
        ("jobs", b"", "repeat +done"),
        ("services --json", b"", '"repeat"'),
        ("workers", b"", "native +idle"),
        (f"health --connect {broker.urls['http']}", b"", "ready"),
        (f"top --connect {broker.urls['http']}", b"", "repeat"),
        ("keys new laptop", b"", "^[0-9a-f]{64}$"),
        ("keys list", b"", "laptop +[0-9a-f]{64} +user"),
        ("--help", b"", "Services and workers"),
    ]
    check_every_row(check, rows)


def test_whatever_needs_more_of_the_system_says_so_in_a_sentence(programs: Programs) -> None:
    """R265"""
    programs.environment |= MASKED

    def check(words: str, code: int, sentence: str) -> None:
        command = masked(programs, *words.split())
        assert (command.ends(), command.out) == (code, ""), command.err
        assert re.fullmatch(rf"dragoman: {sentence}\n", command.err), command.err

    rows = [
        ("serve", 69, r"dragoman serve needs Python's module '\w+', which this system does not have\. Run it on Linux"),
        ("worker --exec cat", 69, r"dragoman worker --exec needs Python's module 'fcntl', .*\. Run it on Linux"),
        ("worker system_tasks --reload", 2, "--reload replaces this process, which Windows cannot do; .*"),
        ("worker system_tasks --max-memory 1GiB", 2, ".*max_memory 1073741824 cannot be measured on Windows; .*"),
        ("jobs --connect ipc:///tmp/b.sock", 2, ".*this system has no Unix sockets; use TCP, .*"),
        ("worker system_tasks --connect ipc:///tmp/b.sock", 2, ".*this system has no Unix sockets; use TCP, .*"),
        ("access allow web --uid 1 --call *", 2, ".*this system cannot check and lock folders; run the command on .*"),
    ]
    check_every_row(check, rows)


ASYNC = """
import asyncio, sys
from sitecustomize import ProactorEventLoop
from dragoman import AsyncClient

async def main():
    async with AsyncClient(sys.argv[1]) as client:
        return await client.services()

for factory in (ProactorEventLoop, asyncio.SelectorEventLoop):
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            print(runner.run(main()))
    except RuntimeError as error:
        print(error)
"""


def test_async_client_names_the_loop_that_it_needs(broker: LocalBroker) -> None:
    done = run("-c", ASYNC, broker.urls["native"])
    assert done.stdout.splitlines() == [
        "this event loop (ProactorEventLoop, the default of Windows) cannot watch sockets; run the program with "
        "asyncio.Runner(loop_factory=asyncio.SelectorEventLoop), or use dragoman.Client",
        "[]",
    ], done.stderr
