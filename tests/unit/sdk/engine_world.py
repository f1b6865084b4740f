"""An engine with fake connections; the test acts as the broker behind each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from dragoman.carriers.carrier import Frame
from dragoman.dialects.sides import SubmitOptions
from dragoman.sdk import client_connection, engine
from dragoman.sdk.engine import Engine
from dragoman.sdk.errors import BrokerUnavailable, DragomanError
from dragoman.sdk.operation import OperationCall
from dragoman.sdk.submit_options import SubmitOptionsCache

WELCOME = [b"\x02\x01", b'{"window":4,"max_payload":100,"resume":30,"lease":10,"heartbeat":2.5}']
RESUMED = [b"\x02\x01", b'{"window":4,"max_payload":100,"resume":30,"resumed":true,"lease":10,"heartbeat":2.5}']


class FakeLink:
    """A fake connection; the test acts as the broker behind it."""

    def __init__(self, place: str, heard: Any, ended: Any, batch_done: Any) -> None:
        self.place = place
        self._heard, self.ended, self._paused = heard, ended, batch_done
        self.sent: list[list[Frame]] = []
        self.writes: list[list[list[Frame]]] = []
        self.is_closed = False

    def send(self, frames: Sequence[Frame]) -> None:
        self.sent.append(list(frames))

    def flush(self) -> None:
        if self.sent:
            self.writes.append(self.sent)
            self.sent = []

    def close(self) -> None:
        self.flush()
        self.is_closed = True

    def receive(self, *messages: list[bytes]) -> None:
        for message in messages:
            self._heard(message)
        self._paused()

    def take(self) -> list[list[list[Frame]]]:
        writes, self.writes = self.writes, []
        return writes


class FakeJob:
    def __init__(self, payload: bytes = b"p", submit_options: SubmitOptions | None = None, number: int = 1) -> None:
        self.submit_options = submit_options or SubmitOptions("echo")
        self.payload: Frame = payload
        self.job_id = number.to_bytes(16, "big")
        self.extras = None
        self.operation: OperationCall | None = None
        self.connection: Any = None
        self.is_over = False
        self.entered = 0.0
        self.due = 0.0
        self.outcome: Any = None
        self.reports: list[tuple[Frame, bool, int]] = []

    def answer(self, view: bytes, payload: Frame) -> None:
        assert self.outcome is None
        self.outcome = (view, bytes(payload))

    def succeed(self, result: Frame) -> None:
        assert self.outcome is None
        self.outcome = bytes(result)

    def fail(self, error: DragomanError) -> None:
        assert self.outcome is None
        self.outcome = error

    def report(self, payload: Frame, is_part: bool, attempt: int) -> None:
        self.reports.append((payload, is_part, attempt))


class World:
    def __init__(self, url: str | list[str], **settings: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self.links: list[FakeLink] = []
        self.wakes = 0
        self.problem: str | None = None
        self.gone: dict[str, BrokerUnavailable] = {}  # errors of addresses
        self.dialled: list[str] = []
        usual: dict[str, Any] = {"connect_timeout": 5.0, "connections": 2} | settings
        self.engine = Engine(SubmitOptionsCache(url).target, self.loop, self._wake, open=self._open, **usual)

    def _wake(self, call: Callable[[], None]) -> None:
        self.wakes += 1
        self.loop.call_soon(call)

    async def _open(
        self, place: Any, carrier: Any, heard: Any, ended: Any, timeout: float, batch_done: Any
    ) -> FakeLink:
        self.dialled.append(str(place))
        if self.problem is not None:
            raise BrokerUnavailable(self.problem)
        if str(place) in self.gone:
            raise self.gone[str(place)]
        self.links.append(FakeLink(str(place), heard, ended, batch_done))
        return self.links[-1]

    def enter(self, *jobs: FakeJob) -> None:
        for job in jobs:
            self.engine.enter(job)

    async def run_once(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def until(self, fact: Callable[[], Any]) -> None:
        async with asyncio.timeout(10):
            while not fact():
                await asyncio.sleep(0.005)

    async def connected(self, *jobs: FakeJob) -> FakeLink:
        self.enter(*jobs)
        await self.run_once()
        link = self.links[-1]
        link.take()
        link.receive(WELCOME)
        return link


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await main()

    asyncio.run(limited())


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer when nothing is left to do."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 1000.0
        selector: Any = self._selector  # type: ignore[attr-defined]
        self._look = selector.select
        selector.select = self._select

    def time(self) -> float:
        return self._now

    def _select(self, timeout: float | None) -> Any:
        assert timeout is not None, "the test waits for something that never happens"
        self._now += timeout
        return self._look(0)


def run_virtually(monkeypatch: pytest.MonkeyPatch, main: Callable[[], Awaitable[None]]) -> None:
    """Run a test on virtual time: it waits for nothing."""
    loop = VirtualLoop()
    for module in (engine, client_connection):
        monkeypatch.setattr(module, "monotonic", loop.time)

    async def limited() -> None:
        async with asyncio.timeout(3600):
            await main()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(limited())


def jobs_of(count: int) -> list[FakeJob]:
    return [FakeJob(b"%d" % number, WISHES, number) for number in range(1, count + 1)]


WISHES = SubmitOptions("echo")
