"""Background jobs of several principals in a server that is stopped and started again on its data folder."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from dragoman.core.effects import Acknowledge, DeliverOutcome, Effect, SendJob
from dragoman.core.model import Caller, JobId
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.rights import CALL, PrincipalLimits, Rights
from dragoman.core.states import JobState, Outcome
from dragoman.server import clock
from dragoman.server.config import Config
from dragoman.server.log import make_log
from dragoman.server.serve import Server
from programs import PATIENCE

Table = dict[str, tuple[Rights, PrincipalLimits]]

OPTIONS = JobOptions(durable=True, waits=True, attempts=1)
CALLER = (Rights(call=("*",)), PrincipalLimits())
TABLE: Table = {"web": CALLER, "batch": CALLER}


class Peer(Caller):
    """A caller of one principal, or a worker, that records the effects it receives."""

    def __init__(self, server: Server, principal: str) -> None:
        super().__init__(self, Owner(server.broker.principals.named(principal)))
        self.server = server
        self.effects: asyncio.Queue[Effect] = asyncio.Queue()

    def execute(self, effect: Effect, now: float) -> None:
        self.effects.put_nowait(effect)

    def enqueue(self, payload: bytes, key: str) -> JobId:
        job = self.server.broker.submit("s", payload, self, OPTIONS, clock.now(), key=key)
        assert job is not None
        self.server.runner.connections.call_before_write(lambda now: None)
        return job.id

    async def next(self) -> Effect:
        return await asyncio.wait_for(self.effects.get(), PATIENCE)


async def served(folder: Path, act: Callable[[Server], Awaitable[None]], table: Table) -> None:
    """Start a server on this folder, run `act` when all jobs are restored, and stop it."""
    config = Config(listen=("native+tcp://127.0.0.1:0",))
    server = Server(asyncio.get_running_loop(), config, 1, make_log("json", "error"), folder=folder)
    try:
        server.broker.principals.apply(table)
        server.listen()
        while server.is_loading:
            await asyncio.sleep(0.001)
        await act(server)
        server.drain()
        assert await asyncio.wait_for(server.stopped, PATIENCE) == 0
    finally:
        server.close()


def test_owners_and_keys_of_two_principals_are_separate_after_a_restart(tmp_path: Path) -> None:
    """R24, R141."""
    ids: dict[str, JobId] = {}

    async def first(server: Server) -> None:
        for name in TABLE:
            peer = Peer(server, name)
            ids[name] = peer.enqueue(name.encode(), "k")
            assert isinstance(await peer.next(), Acknowledge)

    async def second(server: Server) -> None:
        assert {job.id: job.principal.name for job in server.broker.jobs.values()} == {ids[name]: name for name in ids}
        web = Peer(server, "web")
        assert web.enqueue(b"web", "k") == ids["web"]
        assert isinstance(await web.next(), Acknowledge)
        worker = Peer(server, "local")
        joined = server.broker.join(worker, None, "w", ("s",), WorkerProfile(capacity=2), clock.now(), worker.owner)
        assert joined is not None
        server.broker.idle(joined, clock.now())
        server.runner.connections.call_before_write(lambda now: None)
        for _ in ids:
            given = await worker.next()
            assert isinstance(given, SendJob)
            job = given.attempt.job
            assert bytes(job.payload) == job.principal.name.encode()
            server.broker.succeed(given.attempt, b"for " + job.payload, clock.now())
            server.runner.connections.call_before_write(lambda now: None)
        outcome = await web.next()
        assert isinstance(outcome, DeliverOutcome)
        assert (outcome.outcome, outcome.result) == (Outcome.DONE, b"for web")

    async def third(server: Server) -> None:
        """`web` was removed meanwhile: its outcome is kept, and its key is of no use to others."""
        assert [(job.principal.name, job.state) for job in server.broker.jobs.values()] == [
            ("web", JobState.ENDED),
            ("batch", JobState.ENDED),
        ]
        web, batch = server.broker.jobs[ids["web"]].principal, Peer(server, "batch")
        assert (web.is_listed, web.may(CALL, "s")) == (False, False)
        assert batch.enqueue(b"batch", "k") == ids["batch"]
        outcome = await batch.next()
        assert isinstance(outcome, DeliverOutcome)
        assert outcome.job is server.broker.jobs[ids["batch"]]

    asyncio.run(served(tmp_path, first, TABLE))
    asyncio.run(served(tmp_path, second, TABLE))
    asyncio.run(served(tmp_path, third, {"batch": CALLER}))
