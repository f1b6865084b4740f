"""The HTTP application with a broker: no socket, and a clock that stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import httpx2

from dragoman.core.broker import Broker
from dragoman.core.failure import Failure
from dragoman.core.histogram import Histogram
from dragoman.core.model import Attempt, Job, JobId, Payload, Worker
from dragoman.core.options import WorkerProfile
from dragoman.core.policy import Policy
from dragoman.core.states import Outcome
from dragoman.core.store_entries import DeleteJob, StoreJob, StoreValue
from dragoman.http.admission import CONNECTED, Admission
from dragoman.http.app import make_app
from dragoman.http.broker_side import HttpBrokerSide
from dragoman.http.context import AppContext
from dragoman.http.disconnect import HANGUP, DisconnectSignal
from dragoman.http.options import ListenerOptions
from dragoman.http.request_access import RequestAccess
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.schemas import HealthView
from dragoman.server.admission import AdmissionLimits
from dragoman.server.runner import Runner
from dragoman.testing.entropy import SeededEntropy
from owners import LOCAL_OWNER

WALL = 1_800_000_000.0  # what the wall clock is ahead
MAX_PAYLOAD = 4096


class FakeStore:
    """Commits at once, unless it has a problem."""

    def __init__(self) -> None:
        self.problem: str | None = None
        self.commits = Histogram()
        self.is_slow = False  # commits wait until the test says so
        self._waiting: list[Callable[[], None]] = []

    def apply(self, entries: list[StoreJob | StoreValue | DeleteJob], done: Callable[[int, str | None], None]) -> None:
        for number in [entry.number for entry in entries if entry.number][-1:]:
            if self.is_slow:
                self._waiting.append(partial(done, number, self.problem))
            else:
                done(number, self.problem)

    def commit(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each()

    def fetch(
        self,
        job: Job,
        done: Callable[[Payload, Payload, Failure | None], None],
        lost: Callable[[str], None] | None = None,
    ) -> None:
        done(job.payload, job.result, job.failure)

    def close(self) -> None: ...


class WorkerSession:
    dialect = "test"

    def execute(self, effect: Any, now: float) -> None: ...


class World:
    def __init__(self, **policy: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.now = 1_000.0
        self.store = FakeStore()
        self.broker = Broker(Policy(**policy), SeededEntropy("http"))
        self.runner = Runner(
            self.broker,
            self.store,
            lambda: self.now,
            self._log,
            AdmissionLimits(late_iteration=1e9),
            wake=self._wake,
            strict=True,
        )
        self.operations = OperationHandlers(
            self.broker, self.runner.store_access, self.store, lambda: WALL, self._health
        )
        self.runner.sessions.append(self.operations)
        self.session = HttpBrokerSide(self.broker, self.runner.connections, ListenerOptions())
        self.runner.sessions.append(self.session)
        self.listener = AppContext(
            self.broker, self.operations, self.session, self.runner, lambda: self.now, self._health, MAX_PAYLOAD
        )
        self.hangups: list[DisconnectSignal] = []
        self.admission: Admission | None = Admission(self.broker.principals.local)  # of the connection
        self._app = make_app(self.listener)
        transport = httpx2.ASGITransport(self._with_hangup)
        self._client = httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:7480")

    def use(self, access: RequestAccess) -> None:
        """Find the principals of requests in this way."""
        self.listener.access = access
        self._app = make_app(self.listener)

    # ---------------------------------------------------------------- requests

    def ask(self, method: str, path: str, **facts: Any) -> httpx2.Response:
        return self.loop.run_until_complete(self._client.request(method, path, **facts))

    def begin(self, method: str, path: str, **facts: Any) -> asyncio.Task[httpx2.Response]:
        """Start a request that may have to wait."""
        task = self.loop.create_task(self._client.request(method, path, **facts))
        self.settle()
        return task

    def settle(self) -> None:
        """Run the loop until nothing moves."""

        async def rest() -> None:
            for _ in range(30):
                await asyncio.sleep(0)

        self.loop.run_until_complete(rest())

    def finish(self, task: asyncio.Task[httpx2.Response]) -> httpx2.Response:
        self.settle()
        assert task.done(), "it still waits"
        return task.result()

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.runner.run_once()) < end:
            self.now = max(self.now, due)
            self.settle()
        self.now = end
        self.runner.run_once()
        self.settle()

    def close(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.settle()
        self.loop.run_until_complete(self._client.aclose())
        self.loop.close()

    # ---------------------------------------------------------------- what happens behind the listener

    def enqueue(self, service: str = "s", payload: str = "x", **facts: Any) -> str:
        answer = self.ask("POST", "/v1/jobs", json={"service": service, "payload": payload, **facts})
        assert answer.status_code == 202, answer.text
        name: str = answer.json()["id"]
        return name

    def worker(self, *services: str, name: str = "w") -> Worker:
        worker = self.broker.join(
            WorkerSession(), None, name, services or ("s",), WorkerProfile(), self.now, LOCAL_OWNER
        )  # type: ignore[arg-type]
        assert worker is not None
        self.broker.idle(worker, self.now)
        self.runner.run_once()
        return worker

    def job(self, name: str) -> Job:
        return self.broker.jobs[JobId(bytes.fromhex(name))]

    def attempt(self, name: str) -> Attempt:
        attempt = self.job(name).attempt
        assert attempt is not None
        return attempt

    def succeed(self, name: str, result: bytes) -> None:
        self.broker.succeed(self.attempt(name), result, self.now)
        self.runner.run_once()
        self.settle()

    def fail(self, name: str, reason: str, failure: Failure | None = None, outcome: Outcome = Outcome.FAILED) -> None:
        self.broker.fail(self.attempt(name), reason, self.now, failure, outcome)
        self.runner.run_once()
        self.settle()

    def _wake(self) -> None:
        self.loop.call_soon(self.runner.run_once)

    def _with_hangup(self, scope: Any, receive: Any, send: Any) -> Coroutine[Any, Any, None]:
        self.hangups.append(DisconnectSignal())
        scope["extensions"] = {HANGUP: self.hangups[-1], CONNECTED: self.admission}
        done: Coroutine[Any, Any, None] = self._app(scope, receive, send)  # type: ignore[assignment]
        return done

    def _health(self) -> HealthView:
        return HealthView(
            ready=True, problems=[], version="0", jobs=0, workers=0, peers=0, draining=False, loading=False
        )

    def _log(self, level: str, event: str, **fields: object) -> None:
        assert level != "error", (event, fields)
