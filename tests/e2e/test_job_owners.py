"""Background jobs of several principals in a server that is stopped and started again on its data folder."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from dragoman.core.effects import DeliverOutcome, Effect, SendJob
from dragoman.core.failure import Failure
from dragoman.core.interim_effects import Acknowledge
from dragoman.core.model import Caller, JobId, Payload
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.rights import CALL, PrincipalLimits, Rights
from dragoman.core.states import JobState, Outcome
from dragoman.operations.schemas import ErrorView, OperationRequest, ScheduleRef, ScheduleRequest, View
from dragoman.server import clock
from dragoman.server.config import Config
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


class RecordingLog:
    """A log that records its warnings, with the fields that name an object and a reason."""

    def __init__(self) -> None:
        self.warnings: asyncio.Queue[tuple[str, object, object]] = asyncio.Queue()

    def warning(self, event: str, **fields: object) -> None:
        self.warnings.put_nowait((event, fields.get("name"), fields.get("reason")))

    def __getattr__(self, level: str) -> Callable[..., None]:
        return lambda event, **fields: None


class RecordingResponder:
    """Receives the response of an operation of one principal."""

    dialect = origin = "test"

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        self.response.set_result(view)

    def refuse(self, problem: ErrorView) -> None:
        self.response.set_result(problem)


async def ask(server: Server, principal: str, request: OperationRequest, operation: str) -> Any:
    responder = RecordingResponder(Owner(server.broker.principals.named(principal)))
    server.operations.ask(operation, request, b"", responder, clock.now())
    server.runner.connections.call_before_write(lambda now: None)
    return await asyncio.wait_for(responder.response, PATIENCE)


async def served(folder: Path, act: Callable[[Server], Awaitable[None]], table: Table) -> RecordingLog:
    """Start a server on this folder, run `act` when all jobs are restored, and stop it. Returns its log."""
    config, log = Config(listen=("native+tcp://127.0.0.1:0",)), RecordingLog()
    server = Server(asyncio.get_running_loop(), config, 1, log, folder=folder)
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
    return log


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


def test_schedule_has_its_owner_after_a_restart_and_is_paused_without_its_right(tmp_path: Path) -> None:
    """R143, R144."""
    named = ScheduleRef(name="n")

    async def next_run(server: Server, last: str | None) -> None:
        """Wait for the run after this one. Its job belongs to `web`."""
        async with asyncio.timeout(PATIENCE):
            while (job := (await ask(server, "local", named, "schedule")).last_job) == last:
                await asyncio.sleep(0.02)
        assert server.broker.jobs[JobId(bytes.fromhex(job))].principal.name == "web"

    async def first(server: Server) -> None:
        request = ScheduleRequest(name="n", service="s", every=1.0, overlap=True)
        assert (await ask(server, "web", request, "set schedule")).owner == "web"
        await next_run(server, None)

    async def second(server: Server) -> None:
        view = await ask(server, "local", named, "schedule")
        assert view.owner == "web"
        await next_run(server, view.last_job)

    async def third(server: Server) -> None:
        """`web` was removed meanwhile."""
        async with asyncio.timeout(PATIENCE):
            while not (view := await ask(server, "local", named, "schedule")).paused:
                await asyncio.sleep(0.02)
        assert view.paused_reason == "web may not call 's': it is not in the access table"

    async def fourth(server: Server) -> None:
        """And is back: the schedule waits for its resumption."""
        view = await ask(server, "local", named, "schedule")
        assert (view.paused, view.owner) == (True, "web")
        resumed = await ask(server, "local", named, "resume schedule")
        assert (resumed.paused, resumed.paused_reason) == (False, "")
        await next_run(server, view.last_job)

    asyncio.run(served(tmp_path, first, TABLE))
    asyncio.run(served(tmp_path, second, TABLE))
    log = asyncio.run(served(tmp_path, third, {}))
    assert log.warnings.get_nowait() == (
        "schedule paused",
        "n",
        "web may not call 's': it is not in the access table",
    )
    asyncio.run(served(tmp_path, fourth, TABLE))
