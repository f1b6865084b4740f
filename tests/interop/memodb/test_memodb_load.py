"""Many MemoDB connections at once, and slow jobs beside fast ones."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from broker_setup import place_of
from memodb_peers import (
    DISCONNECT,
    HEARTBEAT,
    JOB,
    READY,
    RESULT,
    TCP,
    Nngs,
    Plain,
    Start,
    count_jobs,
    count_workers,
    job,
    joined,
    memo,
    read,
    result_of,
    silent,
)

from dragoman.carriers.sp import Sp
from dragoman.core.states import BUSY, IDLE, WAITING
from dragoman.server import clock
from programs import until

# -------------------------------------------------------------------- slow and fast


def test_slow_jobs_and_fast_ones_side_by_side_each_with_its_own_time(broker_setup: Start, nngs: Nngs) -> None:
    setup = broker_setup(TCP)
    slow = nngs.work(setup.workers, 3, services=("slow",))
    nngs.work(setup.workers, 3, services=("fast",))
    joined(setup, 6)
    callers = nngs.dial(setup.callers)
    patient, hasty = nngs.contexts(callers, 3), nngs.contexts(callers, 3)
    for caller in patient:
        caller.send(job(b"sleep 1.5", "slow", timeout=30_000))
    until(lambda: len(slow.done) == 3, "the slow ones are at work")
    fast = 0
    while count_workers(setup, BUSY) >= 3 and fast < 100:
        for caller in hasty:
            caller.send(job(b"%d" % fast, "fast", timeout=300))
        for caller in hasty:
            assert result_of(caller.recv()) == b"did %d" % fast
        fast += 1
    assert fast >= 20
    assert [result_of(caller.recv()) for caller in patient] == [b"did sleep 1.5"] * 3
    assert silent(setup) == {}


def test_r71_a_fast_job_that_overruns_its_short_time_ends_while_the_slow_one_goes_on(
    broker_setup: Start, nngs: Nngs
) -> None:
    setup = broker_setup(TCP)
    job_runner = nngs.work(setup.workers, 2, services=("slow", "fast"))
    joined(setup, 2)
    with Plain(setup.callers) as caller:
        caller.greeted()
        slow = caller.ask(job(b"sleep 1.0 slow", "slow", timeout=30_000))
        caller.ask(job(b"sleep 0.8 fast", "fast", timeout=200))
        until(lambda: silent(setup) == {"timed out": 1}, "the fast one is given up")
        assert caller.answer() == (slow, memo(RESULT, b"", payload=b"did sleep 1.0 slow"))
        joined(setup, 2)
        assert setup.counters.late_results == 1
        again = caller.ask(job(b"next", "fast", timeout=200))
        assert caller.answer() == (again, memo(RESULT, b"", payload=b"did next"))
    assert DISCONNECT in [kind for kind, _ in list(job_runner.heard.queue)]


# -------------------------------------------------------------------- many at once


def test_fifty_workers_and_fifty_callers_of_libnng_over_two_connections(broker_setup: Start, nngs: Nngs) -> None:
    setup = broker_setup(TCP, strict=False)
    job_runner = nngs.work(setup.workers, 50)
    joined(setup, 50)
    callers = nngs.contexts(nngs.dial(setup.callers), 50)
    for turn in range(20):
        for number, caller in enumerate(callers):
            caller.send(job(b"%d of %d" % (turn, number)))
        for number, caller in enumerate(callers):
            assert result_of(caller.recv()) == b"did %d of %d" % (turn, number)
    assert len(job_runner.done) == len(set(job_runner.done)) == 1000
    assert len(setup.runner.connections.peers) == 2


WORKERS = CALLERS = 500
CONNECTIONS = 10
JOBS = 50_000


class Crowd(asyncio.Protocol):
    """Workers and callers on one connection, each with its own request in flight."""

    def __init__(self, name: int, share: int, seen: Counter[bytes], over: asyncio.Event) -> None:
        self.name = name
        self.seen = seen  # by all crowds: how often each job was given to a worker
        self.answered = 0
        self.wrong: list[bytes] = []
        self.lost = False
        self._left = share  # calls to be made
        self._unanswered = share
        self._sp = Sp("REQ")
        self._requests = 0
        self._calls: dict[bytes, bytes] = {}  # what each caller asked, by its request id
        self._workers: dict[bytes, None] = {}
        self._over = over

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.writelines(self._sp.outgoing)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self._over.set()

    def begin(self, workers: int, callers: int) -> None:
        for _ in range(workers):
            self._workers[self._ask([memo(READY, b"", ["load"])])] = None
        for _ in range(callers):
            self._call()

    def data_received(self, data: bytes) -> None:
        out: list[bytes] = []
        for message in self._sp.feed(data):
            request, body = bytes(message[0]), bytes(message[1])
            if request in self._calls:
                asked = self._calls.pop(request)
                if body != RESULT_HEADER + b"did " + asked:
                    self.wrong.append(body)
                self.answered += 1
                if self._left:
                    self._call(out)
                elif self.answered == self._unanswered:
                    self._over.set()
            else:
                del self._workers[request]
                kind, id, _, payload = read(body)
                if kind == JOB:
                    self.seen[payload] += 1
                    said = memo(RESULT, id, payload=b"did " + payload)
                else:
                    assert kind == HEARTBEAT
                    said = memo(HEARTBEAT, id)
                self._workers[self._ask([said], out)] = None
        self._transport.writelines(out)

    def _call(self, out: list[bytes] | None = None) -> None:
        payload = b"%d/%d" % (self.name, self._left)
        self._left -= 1
        self._calls[self._ask([LOAD_HEADER, payload], out)] = payload

    def _ask(self, frames: list[bytes], out: list[bytes] | None = None) -> bytes:
        self._requests += 1
        request = (0x8000_0000 | self._requests).to_bytes(4, "big")
        encoded = self._sp.encode([request, *frames])
        if out is None:
            self._transport.writelines(encoded)
        else:
            out += encoded  # type: ignore[arg-type]
        return request


LOAD_HEADER = job(b"", "load")
RESULT_HEADER = memo(RESULT, b"")


def test_r76_a_thousand_parked_at_once_and_fifty_thousand_jobs_none_lost_or_doubled(broker_setup: Start) -> None:
    setup = broker_setup(TCP, strict=False)
    seen: Counter[bytes] = Counter()
    setup.run(setup.broker.operator.pause, "load")

    def parked() -> bool:
        return count_workers(setup, IDLE) == WORKERS and count_jobs(setup, WAITING) == CALLERS

    def resume() -> None:
        setup.broker.operator.resume("load", clock.now())
        setup.runner.run_once()

    async def crowd() -> list[Crowd]:
        loop = asyncio.get_running_loop()
        place = place_of(setup.workers)
        crowds = [Crowd(name, JOBS // CONNECTIONS, seen, asyncio.Event()) for name in range(CONNECTIONS)]
        transports = [
            (await loop.create_connection(lambda each=each: each, place.host, place.port))[0]  # type: ignore[union-attr]
            for each in crowds
        ]
        for each in crowds:
            each.begin(WORKERS // CONNECTIONS, CALLERS // CONNECTIONS)
        await asyncio.to_thread(until, parked, "a thousand requests are parked")
        await asyncio.to_thread(setup.run, resume)
        async with asyncio.timeout(60):
            for each in crowds:
                await each._over.wait()
        for each in transports:
            each.close()
        return crowds

    crowds = asyncio.run(crowd())
    assert [each.wrong for each in crowds] == [[]] * CONNECTIONS
    assert [each.answered for each in crowds] == [JOBS // CONNECTIONS] * CONNECTIONS
    assert len(seen) == seen.total() == JOBS
    assert (setup.counters.accepted, setup.counters.dispatched) == (JOBS, JOBS)
    assert silent(setup) == {}
    assert setup.counters.bad_messages == {}


def test_the_broker_lets_go_of_all_who_left(broker_setup: Start, nngs: Nngs) -> None:
    """Nothing of them stays when their times are over."""
    times = "heartbeat_after=0.2&heartbeat_timeout=0.3&detach_timeout=0.1&keep_answers=0.1&orphan_grace=0.1"
    setup = broker_setup(f"{TCP}?{times}")
    for _ in range(3):
        theirs = Nngs()
        try:
            theirs.work(setup.workers, 5)
            joined(setup, 5)
            caller = theirs.dial(setup.callers)
            caller.send(job(b"job"))
            assert result_of(caller.recv()) == b"did job"
        finally:
            theirs.close()
        until(lambda: count_workers(setup) == 0, "the workers are forgotten")
    assert setup.run(lambda: len(setup.broker.jobs)) == 0
    session: Any = setup.runner.sessions[0]
    until(lambda: setup.run(lambda: session._callers.answers.bytes) == 0, "the answers are forgotten")
    assert setup.run(lambda: (session._remotes, session._callers.orphans, session._lost_readies)) == ({}, {}, {})
