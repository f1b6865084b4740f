"""R200. Jobs are found by their parent as long as they are known."""

from __future__ import annotations

from dragoman.core.job_extras import JobExtras, given_extras, is_traceparent
from dragoman.core.model import Job, JobId
from dragoman.core.options import JobOptions
from dragoman.core.restore import StoredJob, restore

from .world import NOBODY, Caller, CheckedBroker, attempt_of

PARENT = JobId(b"p" * 16)
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def child(broker: CheckedBroker, **options: object) -> Job:
    job_options = JobOptions(waits=True, **options)  # type: ignore[arg-type]
    job = broker.submit("s", b"x", Caller(), job_options, 0.0, extras=JobExtras(parent=PARENT))
    assert isinstance(job, Job)
    return job


def children(broker: CheckedBroker) -> list[Job]:
    return list(broker.job_registry.with_extras.children_of(PARENT).values())


def test_call_is_a_child_until_it_ends() -> None:
    broker = CheckedBroker()
    broker.worker()
    jobs = [child(broker), child(broker)]
    assert children(broker) == jobs
    broker.succeed(attempt_of(jobs[0]), b"", 1.0)
    assert children(broker) == jobs[1:]
    broker.withdraw(jobs[1], 1.0)
    assert broker.job_registry.with_extras.by_parent == {}
    assert broker.job_registry.with_extras.count == 0


def test_background_job_is_a_child_until_its_outcome_is_deleted() -> None:
    broker = CheckedBroker(outcome_retention=10.0)
    broker.worker()
    job = child(broker, durable=True)
    broker.save_all()
    broker.take()
    broker.succeed(attempt_of(job), b"", 1.0)
    broker.save_all()
    assert children(broker) == [job]
    broker.tick(12.0)
    assert children(broker) == []


def test_retry_of_a_child_is_a_child() -> None:
    broker = CheckedBroker()
    broker.worker()
    job = child(broker, durable=True, attempts=1)
    broker.save_all()
    broker.take()
    broker.fail(attempt_of(job), "no", 1.0)
    broker.save_all()
    again = broker.operator.retry(job, 2.0)
    assert children(broker) == [job, again]


def test_restored_job_is_a_child() -> None:
    broker = CheckedBroker()
    kept = StoredJob(1, JobId(b"j" * 16), "s", JobOptions(durable=True), 0.0)
    kept.extras = JobExtras(parent=PARENT)
    job = restore(broker.plain, kept, 0.0, NOBODY)
    assert children(broker) == [job]


def test_traceparents_that_w3c_allows() -> None:
    head, id, span = "00", "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    assert is_traceparent(f"{head}-{id}-{span}-01")
    assert is_traceparent(f"cc-{id}-{span}-01-what-comes-later")
    for wrong in (
        "",
        f"{head}-{id}-{span}",
        f"{head}-{id}-{span}-01-more",
        f"ff-{id}-{span}-01",
        f"{head}-{'0' * 32}-{span}-01",
        f"{head}-{id}-{'0' * 16}-01",
        f"{head}-{id.upper()}-{span}-01",
        f"cc-{id}-{span}-01-{'x' * 300}",
    ):
        assert not is_traceparent(wrong), wrong


def test_extras_of_a_submit() -> None:
    assert given_extras(None, None) is None
    assert given_extras(None, "nonsense") is None
    assert given_extras(PARENT, "nonsense") == JobExtras(parent=PARENT)
    assert given_extras(None, TRACE) == JobExtras(traceparent=TRACE)
