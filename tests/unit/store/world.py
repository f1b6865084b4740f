"""A store in a folder with a broker and a runner, and a loop that the test drives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from queue import Queue
from time import monotonic, sleep
from typing import Any

from dragoman.core.broker import Broker
from dragoman.core.effects import DeliverOutcome, Effect, SendJob
from dragoman.core.interim_effects import Acknowledge
from dragoman.core.model import Caller, Job, Worker
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.policy import Policy
from dragoman.core.rights import ALL_RIGHTS, LOCAL
from dragoman.server.admission import AdmissionLimits
from dragoman.server.restore import Restore
from dragoman.server.runner import Runner
from dragoman.store.limits import StoreLimits
from dragoman.store.sqlite import SqliteStore
from dragoman.testing.entropy import SeededEntropy
from owners import LOCAL_OWNER

PATIENCE = 20.0  # only a failing test waits this long
WALL = 1_700_000_000.0  # the wall clock at time 0 of the broker's clock
LIMITS = StoreLimits(ballast=64 * 1024, idle=0.001, retry=0.01)


class Loop:
    """Receives the store's callbacks; they run when the test waits for something."""

    def __init__(self) -> None:
        self._posted: Queue[Callable[[], None]] = Queue()
        self.post = self._posted.put

    def run_one(self) -> None:
        self._posted.get(timeout=PATIENCE)()

    def run_until(self, fact: Callable[[], object]) -> None:
        while not fact():
            self.run_one()

    def run_rest(self) -> None:
        """Run the callbacks that are queued."""
        while not self._posted.empty():
            self.run_one()


class Side(Caller):
    """A recipient with one caller and worker, which records all effects."""

    def __init__(self, owner: Owner = LOCAL_OWNER) -> None:
        super().__init__(self, owner)
        self.heard: list[Effect] = []

    def execute(self, effect: Effect, now: float) -> None:
        self.heard.append(effect)

    def tick(self, now: float) -> float:
        return float("inf")

    def of(self, *kinds: type[Effect]) -> list[Any]:
        return [each for each in self.heard if isinstance(each, kinds)]


class Setup:
    """A broker with a store. The test moves `now`; the wall clock is WALL ahead."""

    def __init__(
        self,
        folder: Path,
        limits: StoreLimits = LIMITS,
        vfs: str | None = None,
        seed: str = "diary",
        now: float = 100.0,
        offset: float = WALL,
        author: str = "test",
        **policy: Any,
    ) -> None:
        self.now = now
        self._folder = folder
        self._seed = seed
        self.loop = Loop()
        self.failures: list[str] = []
        self.store = SqliteStore(folder, self.loop.post, lambda: offset, limits, author=author, vfs=vfs)
        self.store.failed = self.failures.append
        self.broker = Broker(Policy(**policy), SeededEntropy(seed))
        self.runner = Runner(
            self.broker, self.store, lambda: self.now, lambda *_, **__: None, AdmissionLimits(), strict=True
        )
        self.caller = Side()
        self._callers = {LOCAL: self.caller}
        self.workers = Side()
        self.is_loaded = False
        self.restoring = Restore(self.store, self.runner, lambda: self.now, self._loaded)
        self.notes = self.restoring.prepare(offset, self.now)

    def _loaded(self, jobs: int, seconds: float) -> None:
        self.is_loaded = True

    def load(self) -> None:
        self.restoring.start()
        self.loop.run_until(lambda: self.is_loaded)
        self.settle()

    def settle(self) -> None:
        """Wait until every decision is committed and every callback has run."""
        self.runner.run_once()
        while self.broker.job_registry.pending_commits.is_holding:
            self.loop.run_one()
            assert not self.failures, self.failures
            self.runner.run_once()

    def caller_of(self, principal: str) -> Side:
        """The caller of this principal, which has all rights."""
        if principal not in self._callers:
            known = self.broker.principals.named(principal)
            known.rights = ALL_RIGHTS
            self._callers[principal] = Side(Owner(known))
        return self._callers[principal]

    def enqueue(
        self,
        payload: bytes = b"x",
        key: str | None = None,
        service: str = "s",
        principal: str = LOCAL,
        **job_options: Any,
    ) -> Job:
        """Submit a background job; it is not committed yet."""
        asked = JobOptions(durable=True, waits=True, **{"attempts": 3, **job_options})
        job = self.broker.submit(service, payload, self.caller_of(principal), asked, self.now, key=key)
        assert job is not None
        return job

    def worker(self, service: str = "s", **profile: Any) -> Worker:
        worker = self.broker.join(self.workers, None, "w", (service,), WorkerProfile(**profile), self.now, LOCAL_OWNER)
        assert worker is not None
        self.broker.idle(worker, self.now)
        return worker

    def heard(self) -> list[Effect]:
        """Take the effects that all callers have received since the last call."""
        effects = [effect for caller in self._callers.values() for effect in caller.heard]
        for caller in self._callers.values():
            caller.heard.clear()
        return effects

    def accepted(self) -> list[bytes]:
        return [each.job.id for each in self.caller.of(Acknowledge)]

    def answers(self) -> list[DeliverOutcome]:
        return self.caller.of(DeliverOutcome)

    def given(self) -> list[SendJob]:
        return self.workers.of(SendJob)

    def given_payloads(self) -> list[bytes]:
        """The payloads of the jobs that workers were sent, once there is one: the store may have to bring it first."""
        self.settle()
        self.loop.run_until(lambda: self.runner.run_once() and self.given())
        return [bytes(give.attempt.job.payload) for give in self.given()]

    def restarted(self, now: float = 200.0) -> Setup:
        """Another broker on the same folder, which has loaded every job of this one."""
        self.settle()
        self.close()
        setup = Setup(self._folder, seed=f"{self._seed} again", now=now)
        setup.load()
        return setup

    def close(self) -> None:
        self.store.close()


def until(fact: Callable[[], object]) -> None:
    """Wait for something that the store's thread does by itself."""
    deadline = monotonic() + PATIENCE
    while not fact():
        assert monotonic() < deadline, "still waiting"
        sleep(0.002)
