"""Watching the end of real processes, on both event loops."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dragoman.server.event_loop import loop_factory
from dragoman.server.processes import Processes, max_watched

PATIENCE = 15.0


@pytest.fixture(params=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=loop_factory(request.param)) as runner:
        yield runner


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits until it is killed."""
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    yield process
    process.kill()
    process.wait(PATIENCE)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_the_end_of_a_process_is_told_once(runner: asyncio.Runner, sleeper: subprocess.Popen[bytes]) -> None:
    async def live() -> None:
        processes = Processes(asyncio.get_running_loop(), 10)
        ended = asyncio.Event()
        before = descriptors()
        stop = processes.watch(sleeper.pid, ended.set)
        assert stop is not None
        assert not ended.is_set()
        sleeper.kill()
        await asyncio.wait_for(ended.wait(), PATIENCE)
        assert descriptors() == before
        reused = os.open(os.devnull, os.O_RDONLY)  # its descriptor may be another file's by now
        stop()
        os.close(reused)
        processes.close()

    runner.run(live())


def test_a_watch_that_is_stopped_tells_nothing(runner: asyncio.Runner, sleeper: subprocess.Popen[bytes]) -> None:
    async def live() -> None:
        processes = Processes(asyncio.get_running_loop(), 10)
        told: list[str] = []
        ended = asyncio.Event()
        before = descriptors()
        stop = processes.watch(sleeper.pid, lambda: told.append("stopped"))
        assert stop is not None
        processes.watch(sleeper.pid, ended.set)
        stop()
        sleeper.kill()
        await asyncio.wait_for(ended.wait(), PATIENCE)
        assert told == []
        assert descriptors() == before
        processes.close()

    runner.run(live())


def test_a_process_that_cannot_be_watched(
    runner: asyncio.Runner, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def live() -> None:
        loop = asyncio.get_running_loop()
        assert Processes(loop, 0).watch(sleeper.pid, lambda: None) is None
        processes = Processes(loop, 1)
        assert processes.watch(2**22 + 1, lambda: None) is None  # larger than any process id
        assert processes.watch(sleeper.pid, lambda: None) is not None
        assert processes.watch(sleeper.pid, lambda: None) is None
        processes.close()
        monkeypatch.delattr(os, "pidfd_open")
        assert processes.watch(sleeper.pid, lambda: None) is None

    runner.run(live())


@pytest.mark.parametrize(("soft", "most"), [(1024, 256), (20_480, 224), (20_000, 0), (524_288, 504_032), (-1, 20_000)])
def test_peers_come_before_watches(monkeypatch: pytest.MonkeyPatch, soft: int, most: int) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (soft, soft))
    assert max_watched(512 if soft == 1024 else 20_000) == most
