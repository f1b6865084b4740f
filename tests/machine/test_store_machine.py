"""A broker with a store that crashes at any instant, driven at random: the file has what memory had (I3, I16).

A crash is a copy of the files as they are, and another broker on the copy. Everything acknowledged by then must be
there, once, with its latest status.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Container
from math import inf
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from dragoman.core.archive import FOREVER
from dragoman.core.bulk import NewJob
from dragoman.core.effects import DeliverOutcome, SendJob
from dragoman.core.interim_effects import Acknowledge
from dragoman.core.job_extras import JobExtras, JobInput
from dragoman.core.kept_jobs import digest
from dragoman.core.model import ABSENT, Attempt, Job, JobId
from dragoman.core.options import JobOptions
from dragoman.core.restore import StoredJob
from dragoman.core.results_payload import is_packed, unpack_results
from dragoman.core.states import DELAYED, DEPENDENT, ENDED, RUNNING, Outcome, Unique
from dragoman.store.limits import StoreLimits
from dragoman.store.sqlite import SqliteStore
from owners import LOCAL_OWNER
from unit.store.world import WALL, Loop, Setup

LIMITS = StoreLimits(ballast=0, idle=3_600.0, retry=3_600.0, load_batch=3)  # nothing happens by itself
KEEP = 50.0


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="store-machine-"))
        self.runs = 0
        self.accepted: dict[bytes, None] = {}  # acknowledged jobs
        self.told: dict[bytes, Outcome] = {}
        self.owners: dict[bytes, str] = {}  # principals of submitted jobs
        self.batches: list[list[JobId]] = []  # jobs that were submitted together
        self.told_batches: list[list[JobId]] = []  # those among them that were acknowledged
        self.results: dict[bytes, bytes] = {}
        self.setup = self.open(self.root / "0", 100.0)

    def open(self, folder: Path, now: float) -> Setup:
        folder.mkdir(exist_ok=True)
        setup = Setup(folder, LIMITS, seed=str(self.runs), now=now, offset=WALL, outcome_retention=KEEP)
        setup.store.failed = failed
        setup.load()
        return setup

    def teardown(self) -> None:
        self.setup.close()
        shutil.rmtree(self.root)

    # ------------------------------------------------------------ what happens

    @rule(
        size=st.sampled_from([0, 1, 300, 5_000]),
        key=st.sampled_from([None, None, "a", "b"]),
        delay=st.sampled_from([0.0, 0.0, 5.0]),
        attempts=st.integers(1, 3),
        principal=st.sampled_from(["local", "local", "web", "batch"]),
        unique=st.sampled_from(Unique),
        keep=st.sampled_from([None, None, 0.0, 20.0, inf]),
    )
    def enqueue(
        self,
        size: int,
        key: str | None,
        delay: float,
        attempts: int,
        principal: str,
        unique: Unique,
        keep: float | None,
    ) -> None:
        payload = (key or "x").encode() * size  # the same key with another payload is refused
        setup = self.setup
        job_options: dict[str, Any] = {"delay": delay, "attempts": attempts, "unique": unique, "keep": keep}
        first = self.holder(key, principal) if key is not None else None
        if first is not None and first.digest != digest(payload):
            return
        job = setup.enqueue(payload, key=key, principal=principal, **job_options)
        assert (job is first) or (first is None and job.id not in self.owners), "a key that was held made a new job"
        self.owners[job.id] = principal

    def holder(self, key: str, principal: str) -> Job | None:
        """The job that holds a key, as R24 says it: the latest one, if it has not given the key up."""
        same = [job for job in self.setup.broker.jobs.values() if (job.key, job.principal.name) == (key, principal)]
        if not same:
            return None
        job = max(same, key=lambda each: each.number)
        is_held = {
            Unique.KEPT: True,
            Unique.UNFINISHED: job.outcome is None,
            Unique.WAITING: job.outcome is None and not job.spent and not (job.attempt and job.attempt.is_sent),
        }
        return job if is_held[job.options.unique] and job.retried_as is None else None

    def predecessors(self, picks: list[int]) -> tuple[JobId, ...]:
        """Ids of jobs and groups that exist."""
        broker = self.setup.broker
        names = [*(job.id for job in broker.jobs.values()), *broker.job_registry.groups.by_id]
        return tuple(names[pick % len(names)] for pick in picks) if names else ()

    @rule(
        picks=st.lists(st.integers(0, 99), min_size=1, max_size=3),
        runs=st.booleans(),
        input=st.sampled_from([JobInput.PAYLOAD, JobInput.RESULTS]),
        delay=st.sampled_from([0.0, 0.0, 5.0]),
    )
    def enqueue_after(self, picks: list[int], runs: bool, input: JobInput, delay: float) -> None:
        """R190: a job comes after others."""
        after = self.predecessors(picks)
        if not after:
            return
        asked = JobOptions(durable=True, waits=True, attempts=2, delay=delay)
        extras = JobExtras(after=after, runs_after_failure=runs, input=input)
        setup = self.setup
        job = setup.broker.submit("s", b"x", setup.caller_of("local"), asked, setup.now, extras=extras)
        assert job is not None
        self.owners[job.id] = "local"

    @rule(size=st.integers(1, 3), picks=st.lists(st.integers(0, 99), max_size=2), is_group=st.booleans())
    def enqueue_batch(self, size: int, picks: list[int], is_group: bool) -> None:
        """R193: jobs that are stored together, and one that takes their results."""
        setup = self.setup
        asked = JobOptions(durable=True, waits=True, attempts=2)
        new_id = setup.broker.entropy.job_id
        group = new_id() if is_group else None
        before = self.predecessors(picks)
        orders = [NewJob("s", b"x", asked, new_id(), extras=JobExtras(after=before, group=group)) for _ in range(size)]
        after = (group,) if group is not None else tuple(each.id for each in orders)
        last = JobExtras(after=after, input=JobInput.RESULTS, runs_after_failure=True)
        orders.insert(0, NewJob("s", b"x", asked, new_id(), extras=last))
        jobs = setup.broker.bulk.submit(orders, setup.caller_of("local").owner, "test", setup.now)
        ids = [job.id for job in jobs]
        for id in ids:
            self.owners[id] = "local"
        self.batches.append(ids)
        setup.runner.store_access.when_saved(lambda problem: self.told_batches.append(ids) if problem is None else None)

    @rule(can_resume=st.booleans(), capacity=st.integers(1, 3))
    def join(self, can_resume: bool, capacity: int) -> None:
        self.setup.worker(can_resume=can_resume, capacity=capacity)

    def attempts(self) -> list[Attempt]:
        return [job.attempt for job in self.setup.broker.jobs.values() if job.attempt is not None]

    @rule(pick=st.integers(0, 9), fails=st.booleans(), size=st.sampled_from([0, 5, 6_000]))
    @precondition(lambda self: self.attempts())
    def end(self, pick: int, fails: bool, size: int) -> None:
        attempts = self.attempts()
        attempt = attempts[pick % len(attempts)]
        if fails:
            self.setup.broker.fail(attempt, "no \u20ac", self.setup.now)
        else:
            self.results[attempt.job.id] = b"r" * size
            self.setup.broker.succeed(attempt, b"r" * size, self.setup.now)

    @rule(pick=st.integers(0, 9))
    @precondition(lambda self: any(job.is_told for job in self.setup.broker.jobs.values()))
    def delete(self, pick: int) -> None:
        kept = self.setup.broker.job_registry.kept
        ended = [job for job in self.setup.broker.jobs.values() if job.is_told and not kept.archive.is_pinned(job)]
        if ended:
            kept.erase(ended[pick % len(ended)], is_waited_for=True)

    @rule(pick=st.integers(0, 9))
    @precondition(lambda self: self.attempts())
    def leave(self, pick: int) -> None:
        attempts = self.attempts()
        self.setup.broker.leave(attempts[pick % len(attempts)].worker, self.setup.now, "it died")

    @rule(pick=st.integers(0, 9))
    @precondition(lambda self: self.setup.broker.jobs)
    def withdraw(self, pick: int) -> None:
        jobs = list(self.setup.broker.jobs.values())
        self.setup.broker.withdraw(jobs[pick % len(jobs)], self.setup.now)

    @rule()
    @precondition(lambda self: any(job.quarantined for job in self.setup.broker.jobs.values()))
    def retry(self) -> None:
        job = next(job for job in self.setup.broker.jobs.values() if job.quarantined)
        again = self.setup.broker.operator.retry(job, self.setup.now)
        if again is not None:
            self.owners[again.id] = self.owners[job.id]

    @rule(seconds=st.sampled_from([0.05, 1.0, 7.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.setup.now += seconds
        self.setup.broker.extend_leases(seconds, self.setup.now)  # leases are not tested here
        self.setup.runner.run_once()

    @rule()
    def run_once(self) -> None:
        """Pass the decisions to the store, without its callbacks."""
        self.setup.runner.run_once()

    # ------------------------------------------------------------ what must hold

    @rule()
    def compare(self) -> None:
        """I16."""
        self.setup.settle()
        self.wait_for_store()  # no caller waits for deletes
        self.receive()
        memory = {job.number: job for job in self.setup.broker.jobs.values() if job.options.durable}
        kept = {each.number: each for each in self.read_copy()}
        assert kept.keys() == memory.keys()
        for number, job in memory.items():
            check_same(kept[number], job, self.setup.broker.attempts.resumable)
            if job.payload is not ABSENT and (job.state is not ENDED or job.quarantined):
                assert self.stored_payload(job) == job.payload
            if job.outcome is Outcome.DONE:
                assert self.result_of(job) == self.results[job.id]

    def result_of(self, job: Job) -> bytes:
        """The result of a job, from memory or from the store."""
        found: list[bytes] = []
        self.setup.runner.store_access.fetch(job, lambda payload, result, failure: found.append(bytes(result)))
        self.setup.loop.run_until(lambda: found)
        return found[0]

    @rule()
    def crash(self) -> None:
        """I3, R107, R108."""
        self.wait_for_store()
        self.receive()
        for id in [id for id in self.accepted if self.is_over(id)]:
            del self.accepted[id]  # it was deleted, or is going to be
            self.told.pop(id, None)
        spent = {job.id: job.spent for job in self.setup.broker.jobs.values()}
        folder = self.copy()
        self.setup.close()
        self.setup = self.open(folder, self.setup.now)
        jobs = self.setup.broker.jobs
        assert self.accepted.keys() <= jobs.keys(), "an acknowledged job is gone"
        for id, outcome in self.told.items():
            assert jobs[JobId(id)].outcome is outcome, "a job that ended has not"
        for job in jobs.values():
            assert job.spent <= (job.options.attempts or 1)
            assert job.spent <= spent.get(job.id, 3) + 1
            assert job.principal.name == self.owners[job.id], "a job has changed its owner"
            if job.key is not None:
                first = self.setup.broker.job_registry.kept.first_with(job.owner, job.service, job.key)
                assert first is self.holder(job.key, job.principal.name), "a key finds another job after a crash"
        self.check_batches()
        self.check_payloads()
        self.check_dependent()

    def check_batches(self) -> None:
        """R193: all jobs of a batch are there, or none. Those that were deleted since are not looked for."""
        jobs = self.setup.broker.jobs
        for ids in self.batches:
            there = [id in jobs for id in ids]
            assert ids in self.told_batches or not any(there) or all(there), "a batch is there in part"
        self.batches = [ids for ids in self.batches if ids not in self.told_batches and ids[0] in jobs]
        self.told_batches = []

    def check_dependent(self) -> None:
        """R191: no job waits for jobs that have all ended, or whose outcome is lost."""
        broker = self.setup.broker
        for job in broker.jobs.values():
            if job.state is DEPENDENT:
                entry = broker.dependencies.find(job)
                assert entry is not None
                assert entry.unended, "it waits for nothing"
            assert "not in the store" not in job.reason, "a predecessor was deleted too early"

    def stored_payload(self, job: Job) -> bytes:
        """Read the payload from the file."""
        found: list[bytes] = []
        self.setup.store.fetch(job, lambda payload, *_: found.append(bytes(payload)))
        self.setup.loop.run_until(lambda: found)
        return found[0]

    def is_over(self, id: bytes) -> bool:
        """True if the job is deleted, or has ended and its outcome is not kept."""
        job = self.setup.broker.jobs.get(JobId(id))
        return job is None or (job.outcome is not None and not job.outlives_end)

    def receive(self) -> None:
        """Note what has been promised until now."""
        for effect in self.setup.heard():
            if isinstance(effect, Acknowledge):
                self.accepted[effect.job.id] = None
            elif isinstance(effect, DeliverOutcome) and effect.job is not None:
                self.told[effect.job.id] = effect.outcome
        self.told = {id: outcome for id, outcome in self.told.items() if id in self.setup.broker.jobs}

    def wait_for_store(self) -> None:
        """Wait until the store has written what it was given so far."""
        is_here: list[bool] = []
        self.setup.store.fetch(Job(JobId(b""), Any, b"", (), Any, 0.0, LOCAL_OWNER), lambda *_: is_here.append(True))  # type: ignore[arg-type]
        self.setup.loop.run_until(lambda: is_here)

    def check_payloads(self) -> None:
        """Check that every dispatched job has its payload."""
        self.setup.settle()
        for give in self.setup.workers.of(SendJob):
            job = give.attempt.job
            payload = job.payload
            if is_packed(payload):
                payload, entries = unpack_results(payload)
                results = [one for each in entries for one in (each if isinstance(each, list) else [each])]
                assert all(one is None or one.strip(b"r") == b"" for one in results)
            assert len(payload) in (0, 1, 300, 5_000)

    def copy(self) -> Path:
        """Copy the files as a crash would leave them: the store's thread does nothing by itself here."""
        self.runs += 1
        folder = self.root / str(self.runs)
        folder.mkdir()
        for path in self.setup.store.path.parent.glob("store.db*"):
            shutil.copyfile(path, folder / path.name)
        return folder

    def read_copy(self) -> list[StoredJob]:
        found: list[StoredJob] = []
        loop, is_over = Loop(), []
        store = SqliteStore(self.copy(), loop.post, lambda: WALL, LIMITS)
        store.load(found.extend, lambda: is_over.append(True))
        loop.run_until(lambda: is_over)
        store.close()
        return found


def failed(sentence: str) -> None:
    raise AssertionError(sentence)


def check_same(kept: StoredJob, job: Job, resumable: Container[bytes]) -> None:
    assert (kept.extras or JobExtras()) == (job.extras or JobExtras())  # none are as good as empty ones
    for name in ("id", "options", "key", "digest", "retry_of", "spent", "deaths", "outcome", "reason"):
        assert getattr(kept, name) == getattr(job, name), name
    assert kept.quarantined == (job.quarantined or job.retried_as is not None)  # its retry takes it out again
    assert (kept.service, kept.owner) == (job.service.name, job.principal.name)
    for found, record in zip(kept.history or [], job.history or [], strict=True):
        assert (found.number, found.worker, found.outcome, found.reason) == (
            record.number,
            record.worker,
            record.outcome,
            record.reason,
        )
        assert record.started is not None
        assert record.ended is not None
        assert abs((found.started or 0.0) - record.started) < 2e-3
        assert abs((found.ended or 0.0) - record.ended) < 2e-3
    assert abs(kept.created - job.created) < 1e-3
    if job.outcome is not None:
        assert job.ended is not None
        if job.keep_until == FOREVER or not job.outlives_end:
            assert kept.keep_until == inf
        else:
            keep_until = min(job.keep_until, job.ended + retention(job))  # moved in memory while the outcome is needed
            assert abs(kept.keep_until - keep_until) < 1e-3
        assert abs((kept.ended or 0.0) - job.ended) < 1e-3
    if job.state is RUNNING:
        assert job.attempt is not None
        assert (kept.token, kept.attempt) == (job.attempt.token, job.attempt.number)
        assert kept.worker == job.attempt.worker.name
        if job.attempt.token not in resumable:  # of one that was given out before a crash, the file knows more
            assert kept.can_resume == job.attempt.worker.profile.can_resume
    if job.state is DELAYED and job.spent:
        assert abs(kept.start_at - job.start_at) < 1e-3


def retention(job: Job) -> float:
    """R136: seconds for which the outcome of a job is kept."""
    keep = job.options.keep
    is_spent = job.quarantined or job.retried_as is not None
    return KEEP if keep is None or (is_spent and keep < KEEP) else keep


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=50, stateful_step_count=50, deadline=None)
