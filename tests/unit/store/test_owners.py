"""Owners of stored jobs: the name of the principal is stored with each job, and separates keys after a restart."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from dragoman.core.effects import DeliverOutcome
from dragoman.core.model import Job
from dragoman.core.options import JobOptions
from dragoman.core.rights import CALL, PrincipalLimits, Rights
from dragoman.core.states import Outcome, RefusalReason
from dragoman.store import recovery
from dragoman.store.errors import StoreError
from dragoman.store.limits import StoreLimits
from dragoman.store.rescue import rescue

from .damage import damage, raw
from .test_losses import start_and_read
from .world import Setup

PRINCIPALS = ("local", "web", "batch")


def owners(setup: Setup) -> dict[bytes, str]:
    return {job.id: job.principal.name for job in setup.broker.jobs.values()}


def filled(folder: Path, jobs: int = 6, size: int = 1) -> dict[bytes, str]:
    """Create and close a store with waiting jobs of several principals. Returns the principals by id."""
    setup = Setup(folder)
    for number in range(jobs):
        setup.enqueue(b"%d" % number * size, principal=PRINCIPALS[number % 3])
    setup.settle()
    setup.close()
    return owners(setup)


# ---------------------------------------------------------------- restarts


def test_every_job_has_its_owner_after_a_restart(tmp_path: Path) -> None:
    """R141: waiting, running, done and quarantined jobs."""
    setup = Setup(tmp_path)
    setup.worker(capacity=9, can_resume=True)
    for principal in PRINCIPALS:
        for fails in (False, True, None):
            job = setup.enqueue(principal=principal, attempts=1)
            setup.settle()
            assert job.attempt is not None
            if fails:
                setup.broker.fail(job.attempt, "no", setup.now)
            elif fails is not None:
                setup.broker.succeed(job.attempt, b"yes", setup.now)
        setup.enqueue(principal=principal, service="nobody offers it")
    setup.settle()
    before = owners(setup)
    again = setup.restarted(setup.now + 1.0)
    assert len(before) == 12
    assert owners(again) == before
    assert {job.attempt is not None for job in again.broker.jobs.values()} == {True, False}
    last = again.restarted(again.now + 1.0)
    assert owners(last) == before
    last.close()


@pytest.mark.parametrize("has_ended", [False, True])
def test_keys_of_two_principals_stay_separate(tmp_path: Path, has_ended: bool) -> None:
    """R24, R141: each finds its own job by the same key, with its own payload."""
    setup = Setup(tmp_path)
    first = {each: setup.enqueue(each.encode(), key="k", principal=each).id for each in PRINCIPALS}
    if has_ended:
        setup.worker(capacity=9)
        setup.settle()
        for give in setup.given():
            setup.broker.succeed(give.attempt, b"for " + give.attempt.job.payload, setup.now)
    again = setup.restarted()
    found = {each: again.enqueue(each.encode(), key="k", principal=each).id for each in PRINCIPALS}
    assert found == first
    assert again.enqueue(b"other", key="k", principal="a third one").id not in first.values()
    again.settle()
    told = {each: [answer.job.id for answer in again.caller_of(each).of(DeliverOutcome)] for each in PRINCIPALS}
    assert told == {each: [first[each]] if has_ended else [] for each in PRINCIPALS}
    again.close()


def test_retried_and_released_jobs_keep_their_owner(tmp_path: Path) -> None:
    """A release writes the row again, with its checksum."""
    setup = Setup(tmp_path)
    setup.worker()
    released, retried = (setup.enqueue(b"%d" % each, principal="web", attempts=1) for each in range(2))
    for _ in range(2):
        setup.settle()
        setup.broker.fail(setup.given()[-1].attempt, "no", setup.now)
    again = setup.restarted()
    assert again.broker.operator.release(again.broker.jobs[released.id], again.now)
    new = again.broker.operator.retry(again.broker.jobs[retried.id], again.now)
    assert new is not None
    again.settle()
    again.broker.job_registry.pending_commits.save(again.broker.jobs[released.id], rewrites=True)
    last = again.restarted(300.0)
    assert owners(last) == {released.id: "web", retried.id: "web", new.id: "web"}
    last.close()
    assert recovery.check(tmp_path) == ""


# ---------------------------------------------------------------- principals that are gone


def test_job_of_a_principal_that_is_gone_runs_to_its_end(tmp_path: Path) -> None:
    """R142: rights count when a job is submitted."""
    setup = Setup(tmp_path)
    id = setup.enqueue(b"left behind", key="k", principal="web").id
    again = setup.restarted()
    changes = again.broker.principals.apply({"batch": (Rights(call=("*",)), PrincipalLimits())})
    assert changes.removed == ()
    job: Job = again.broker.jobs[id]
    assert (job.principal.name, job.principal.is_listed, job.principal.may(CALL, "s")) == ("web", False, False)
    again.worker()
    assert again.given_payloads() == [b"left behind"]
    again.broker.succeed(again.given()[0].attempt, b"done", again.now)
    again.settle()
    assert (job.outcome, job.result) == (Outcome.DONE, b"done")
    last = again.restarted(300.0)
    assert owners(last) == {id: "web"}
    last.close()


def test_principal_that_is_gone_submits_nothing_and_is_itself_when_it_returns(tmp_path: Path) -> None:
    """R142: its stored jobs and keys belong to the principal of that name."""
    setup = Setup(tmp_path)
    id = setup.enqueue(b"x", key="k", principal="web").id
    again = setup.restarted()
    caller, web = again.caller_of("web"), again.broker.principals.named("web")
    again.broker.principals.apply({})
    options = JobOptions(durable=True, waits=True)
    assert again.broker.submit("s", b"x", caller, options, again.now, key="k") is None
    again.settle()
    [refused] = caller.of(DeliverOutcome)
    assert (refused.refusal, refused.reason) == (RefusalReason.FORBIDDEN, "forbidden: web may not call 's'")
    again.broker.principals.apply({"web": (Rights(call=("s",)), PrincipalLimits())})
    joined = again.broker.submit("s", b"x", caller, options, again.now, key="k")
    assert joined is again.broker.jobs[id]
    assert joined.principal is web
    again.close()


# ---------------------------------------------------------------- damage, recovery, size


@pytest.mark.parametrize(("before", "after"), [("web", "'batch'"), ("web", "NULL"), ("local", "'web'")])
def test_changed_owner_is_damage(tmp_path: Path, before: str, after: str) -> None:
    """R129, R141: a job would be seen, and its key found, by another principal."""
    setup = Setup(tmp_path)
    id = setup.enqueue(principal=before).id
    setup.settle()
    setup.close()
    file = raw(tmp_path)
    file.execute(f"UPDATE job SET owner = {after}")
    file.close()
    assert recovery.check(tmp_path) == "1 jobs cannot be read"
    with pytest.raises(StoreError, match=f"job {id.hex()} does not match its checksum"):
        start_and_read(tmp_path)
    found = recovery.recover(tmp_path)
    assert found is not None
    assert (found.jobs, found.missing) == (0, [f"job {id.hex()}: left out"])


def test_recovery_keeps_owners(tmp_path: Path) -> None:
    """Rows around damaged pages are read one by one."""
    before = filled(tmp_path, 300, 700)
    damage(tmp_path, 40)
    found = recovery.recover(tmp_path)
    assert found is not None
    assert 200 < found.jobs < 300
    setup = Setup(tmp_path)
    setup.load()
    assert owners(setup).items() <= before.items()
    assert {*owners(setup).values()} == {*PRINCIPALS}
    setup.close()


def test_rescue_keeps_owners(tmp_path: Path) -> None:
    """The open files of a broker whose folder was removed."""
    folder = tmp_path / "data"
    folder.mkdir()
    setup = Setup(folder, StoreLimits(ballast=0, idle=3_600.0, retry=3_600.0))  # it writes nothing meanwhile
    for principal in PRINCIPALS:
        setup.enqueue(principal=principal)
    setup.settle()
    shutil.rmtree(folder)
    rescue(os.getpid(), tmp_path / "saved")
    setup.close()
    assert recovery.check(tmp_path / "saved") == ""
    saved = Setup(tmp_path / "saved")
    saved.load()
    assert owners(saved) == owners(setup)
    saved.close()


def test_local_takes_one_byte_of_a_row(tmp_path: Path) -> None:
    """Another principal takes its name. Most stores have no other owner than `local`."""
    setup = Setup(tmp_path)
    setup.enqueue()
    setup.settle()
    setup.close()
    file = raw(tmp_path)

    def size() -> int:
        found: int = file.execute("SELECT sum(payload) FROM dbstat WHERE name = 'job'").get
        return found

    local = size()
    file.execute("UPDATE job SET owner = 'web'")
    web = size()
    file.execute("ALTER TABLE job DROP COLUMN owner")
    assert (local - size(), web - local) == (1, len("web"))
    file.close()
