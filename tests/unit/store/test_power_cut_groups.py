"""Batches, groups and dependent jobs after a power cut at any instant, with any part of the unsynced data lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from dragoman.core.bulk import NewJob
from dragoman.core.job_extras import JobExtras, JobInput
from dragoman.core.model import JobId
from dragoman.core.options import JobOptions
from dragoman.core.results_payload import unpack_results
from dragoman.core.states import DEPENDENT, ENDED, Outcome
from dragoman.store.limits import StoreLimits

from .disk import Disk
from .world import Setup

IMAGES = 60
SIZE = 4  # jobs of a group
LIMITS = StoreLimits(ballast=0, idle=0.001, busy_wal=100_000)
OPTIONS = JobOptions(durable=True, waits=True, attempts=1)
LATER = JobOptions(durable=True, waits=True, attempts=1, delay=1e6)  # never dispatched here


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk("losing power")
    yield disk
    disk.unregister()


class Batch:
    """A group, a job that takes its results, and one that comes after that."""

    def __init__(self, setup: Setup) -> None:
        new_id = setup.broker.entropy.job_id
        self.group = new_id()
        members = [NewJob("s", b"%d" % n, OPTIONS, new_id(), extras=JobExtras(group=self.group)) for n in range(SIZE)]
        taker = NewJob("t", b"own", LATER, new_id(), extras=JobExtras(after=(self.group,), input=JobInput.RESULTS))
        last = NewJob("t", b"", LATER, new_id(), extras=JobExtras(after=(taker.id,)))
        self.ids = [each.id for each in (*members, taker, last)]
        setup.broker.bulk.submit([last, taker, *members], setup.caller.owner, "test", setup.now)
        self.is_told = False
        setup.runner.store_access.when_saved(self._saved)

    def _saved(self, problem: str | None) -> None:
        assert problem is None
        self.is_told = True


Image = tuple[dict[str, bytes], list[list[JobId]], list[list[JobId]]]  # files; batches; those that were acknowledged


def live(folder: Path, disk: Disk, random: Random) -> list[Image]:
    """Run a broker. Returns what a power cut would leave at many instants."""
    setup = Setup(folder, LIMITS, vfs=disk.name)
    setup.runner._strict = False
    setup.worker(capacity=1_000_000)
    batches: list[Batch] = []
    taken: list[Image] = []

    def look() -> None:
        if random.random() < 0.3 and len(taken) < IMAGES:
            told = [each.ids for each in batches if each.is_told]
            taken.append((disk.after_power_cut(random), [each.ids for each in batches], told))

    disk.before_write = look
    done = 0
    while len(taken) < IMAGES:
        batches.append(Batch(setup))
        setup.settle()
        given = setup.given()
        for give in given[done : done + random.randrange(2 * SIZE)]:
            if give.attempt.job.attempt is give.attempt:
                if random.random() < 0.1:
                    setup.broker.fail(give.attempt, "boom", setup.now)
                else:
                    setup.broker.succeed(give.attempt, b"result of " + give.attempt.job.payload, setup.now)
            done += 1
        if random.random() < 0.5:
            setup.settle()
    setup.close()
    return taken


def test_batches_are_whole_and_dependent_jobs_are_decided_after_a_power_cut(tmp_path: Path, disk: Disk) -> None:
    random = Random("power cut of groups")
    (tmp_path / "live").mkdir()
    seen: Counter[str] = Counter()
    for number, (files, batches, told) in enumerate(live(tmp_path / "live", disk, random)):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, left in files.items():
            if name:
                (folder / name).write_bytes(left)
        setup = Setup(folder, seed="after", now=200.0)
        setup.load()
        for ids in batches:
            there = sum(id in setup.broker.jobs for id in ids)
            assert there == len(ids) or (there == 0 and ids not in told), "a batch is there in part"
        finish_groups(setup)
        seen.update(check(setup, ids) for ids in batches)
        setup.close()
    assert set(seen) == {"not there", "cancelled", "ready"}
    assert min(seen.values()) > 10, "the test has looked at all cases"


def finish_groups(setup: Setup) -> None:
    """Let all jobs of groups end. Those that ran before are lost, because they have one attempt."""
    while any(job.state is not ENDED for job in setup.broker.jobs.values() if job.service.name == "s"):
        setup.worker()
        setup.loop.run_until(lambda: setup.runner.run_once() and setup.given())
        for give in setup.given():
            if give.attempt.job.attempt is give.attempt:
                setup.broker.succeed(give.attempt, b"result of " + give.attempt.job.payload, setup.now)
        setup.workers.heard.clear()
        setup.settle()


def check(setup: Setup, ids: list[JobId]) -> str:
    """Check a batch whose group is complete, and return what became of it."""
    jobs = setup.broker.jobs
    if ids[0] not in jobs:
        return "not there"
    taker, last = jobs[ids[SIZE]], jobs[ids[SIZE + 1]]
    if any(jobs[id].outcome is not Outcome.DONE for id in ids[:SIZE]):
        assert (taker.outcome, last.outcome) == (Outcome.CANCELLED, Outcome.CANCELLED)
        return "cancelled"
    setup.loop.run_until(lambda: setup.runner.run_once() and taker.state is not DEPENDENT)
    found: list[bytes] = []
    setup.runner.store_access.fetch(taker, lambda payload, *_: found.append(bytes(payload)))  # it may be only there
    setup.loop.run_until(lambda: found)
    assert unpack_results(found[0]) == (b"own", [[b"result of %d" % number for number in range(SIZE)]])
    assert last.state is DEPENDENT
    return "ready"
