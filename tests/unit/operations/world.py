"""A broker with its operations, on a clock that the test sets, and a store that commits when the test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dragoman.core.broker import Broker
from dragoman.core.failure import Failure
from dragoman.core.histogram import Histogram
from dragoman.core.model import Attempt, Job, JobId, Payload, Worker
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.policy import Policy
from dragoman.core.restore import StoredJob
from dragoman.core.states import Outcome
from dragoman.core.store_entries import DeleteJob, StoreJob, StoreValue
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.responders import PendingRequest
from dragoman.operations.schemas import ErrorView, HealthView, View
from dragoman.operations.table import OPERATIONS
from dragoman.server.admission import AdmissionLimits
from dragoman.server.runner import Runner
from dragoman.testing.entropy import SeededEntropy
from owners import LOCAL_OWNER

UNKNOWN = "0" * 32  # an id that no job has
WALL = 1_000_000.0  # seconds that the wall clock is ahead
READY = HealthView(ready=True, problems=[], version="0", jobs=0, workers=0, peers=0, draining=False, loading=False)


class ManualStore:
    """Holds entries until `write`."""

    def __init__(self) -> None:
        self.problem: str | None = None
        self.commits = Histogram()
        self.is_slow = False
        self.held: list[tuple[int, Callable[[int, str | None], None]]] = []
        self.notes: dict[str, str] = {}
        self.saved: list[bytes] = []
        self.erased: list[bytes] = []
        self.bodies: dict[bytes, tuple[bytes, bytes]] = {}
        self.fetches: list[tuple[bytes, Callable[[Payload, Payload, Failure | None], None]]] = []

    def apply(self, entries: list[StoreJob | StoreValue | DeleteJob], done: Callable[[int, str | None], None]) -> None:
        number = 0
        for entry in entries:
            if isinstance(entry, StoreJob):
                self.saved.append(entry.job.id)
                number = entry.number
            elif isinstance(entry, StoreValue):
                number = entry.number
                if entry.value is None:
                    self.notes.pop(entry.key, None)
                else:
                    self.notes[entry.key] = entry.value
            else:
                self.erased.append(entry.job.id)
                number = entry.number or number
        if number:
            self.held.append((number, done))
        if not self.is_slow:
            self.write()

    def write(self) -> None:
        held, self.held = self.held, []
        for number, done in held:
            done(number, self.problem)

    def fetch(
        self,
        job: Job,
        done: Callable[[Payload, Payload, Failure | None], None],
        lost: Callable[[str], None] | None = None,
    ) -> None:
        self.fetches.append((job.id, done))

    def bring(self) -> None:
        fetches, self.fetches = self.fetches, []
        for id, done in fetches:
            done(*self.bodies[id], None)

    def close(self) -> None: ...


class RecordingResponder:
    """Records its response."""

    dialect = "test"
    origin = "127.0.0.1:50000"

    def __init__(self, owner: Owner = LOCAL_OWNER) -> None:
        self.owner = owner
        self.responses: list[Any] = []
        self.payload: bytes = b""
        self.failure: Failure | None = None
        self.pending: PendingRequest | None = None

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        self.responses.append(view)
        self.payload = bytes(payload)
        self.failure = failure

    def refuse(self, problem: ErrorView) -> None:
        self.responses.append(problem)


class WorkerSession:
    """Recipient of the workers: records the effects."""

    dialect = "test"

    def __init__(self) -> None:
        self.said: list[Any] = []

    def execute(self, effect: Any, now: float) -> None:
        self.said.append(effect)


class World:
    def __init__(self, **policy: Any) -> None:
        self.now = 1_000.0
        self.owner = LOCAL_OWNER  # of requests and workers
        self.store = ManualStore()
        self.log: list[str] = []
        self.broker = Broker(Policy(**policy), SeededEntropy("operations"))
        limits = AdmissionLimits(late_iteration=1e9)
        self.runner = Runner(
            self.broker,
            self.store,
            lambda: self.now,
            lambda _, event, **__: self.log.append(event),
            limits,
            strict=True,
        )
        self.operations = OperationHandlers(
            self.broker, self.runner.store_access, self.store, lambda: WALL, lambda: READY
        )
        self.runner.sessions.append(self.operations)
        self.workers = WorkerSession()

    def act_as(self, name: str) -> None:
        """Make the requests and workers that follow those of this principal."""
        self.owner = Owner(self.broker.principals.named(name), f"connection of {name}")

    def ask(self, operation: str, body: bytes = b"", /, **fields: Any) -> Any:
        """Call an operation. Returns its view or error, or None if there is no response yet."""
        responder = self.begin(operation, body, **fields)
        assert len(responder.responses) <= 1
        return responder.responses[0] if responder.responses else None

    def begin(self, operation: str, body: bytes = b"", /, **fields: Any) -> RecordingResponder:
        responder = RecordingResponder(self.owner)
        responder.pending = self.operations.ask(
            operation, OPERATIONS[operation].request(**fields), body, responder, self.now
        )
        self.runner.run_once()
        self.runner.run_once()
        return responder

    def enqueue(self, service: str = "s", body: bytes = b"x", **fields: Any) -> str:
        view = self.ask("enqueue", body, service=service, **fields)
        assert not isinstance(view, ErrorView), view
        name: str = view.id
        return name

    def job(self, name: str) -> Job:
        return self.broker.jobs[JobId(bytes.fromhex(name))]

    def attempt(self, name: str) -> Attempt:
        attempt = self.job(name).attempt
        assert attempt is not None
        return attempt

    def worker(self, *services: str, name: str = "w", **profile: Any) -> Worker:
        worker = self.broker.join(
            self.workers, None, name, services or ("s",), WorkerProfile(**profile), self.now, self.owner
        )
        assert worker is not None
        self.broker.idle(worker, self.now)
        self.runner.run_once()
        return worker

    def wait(self, seconds: float) -> None:
        """Let time pass, with an iteration at every time at which something is due."""
        end = self.now + seconds
        while (due := self.runner.run_once()) < end:
            self.now = max(self.now, due)
        self.now = end
        self.runner.run_once()


def ended_job(world: World) -> StoredJob:
    """A done job of an earlier run, as the store returns it."""
    kept = StoredJob(1, JobId(b"j" * 16), "s", JobOptions(durable=True, waits=True, attempts=3), world.now - 10.0)
    kept.outcome, kept.keep_until = Outcome.DONE, world.now + 100.0
    world.broker.job_registry.pending_commits.begin_after(1)
    return kept


def quarantined_job(world: World) -> str:
    """Put a job into quarantine. Returns its id."""
    name = world.enqueue(attempts=1)
    world.broker.fail(world.attempt(name), "poison", world.now)
    world.runner.run_once()
    return name
