"""Groups of quarantined jobs. The checked broker compares them with the jobs after every call (I22)."""

from __future__ import annotations

from case_tables import check_every_row
from dragoman.core.general_reasons import generalize
from dragoman.core.model import Job

from .world import CheckedBroker, attempt_of, caller_of, principal_of


def fail(broker: CheckedBroker, reason: str, service: str = "s", now: float = 0.0, **more: object) -> Job:
    """A background job whose only attempt has failed."""
    worker = broker.worker(service, now=now)
    job = broker.store(service=service, now=now, attempts=1, **more)
    broker.take()
    broker.fail(attempt_of(job), reason, now)
    broker.save_all(now)
    broker.leave(worker, now, "gone")
    return job


def groups(broker: CheckedBroker) -> list[tuple[str, str, str, int]]:
    parts = broker.job_registry.kept.quarantine.parts()
    return [(part.service, part.reason, part.owner, len(part.jobs)) for part in parts]


def test_varying_parts_of_reasons_are_left_out() -> None:
    def row(reason: str, expected: str) -> None:
        assert generalize(reason) == expected

    check_every_row(
        row,
        [
            ("no result within 30 s", "no result within … s"),
            ("took 12.75 s of 10", "took … s of …"),
            ("KeyError: 'user-42'", "KeyError: …"),
            ('cannot open "a b.png": `x`', "cannot open …: …"),
            ("can't open 'x', isn't there", "can't open …, isn't there"),
            ("at 0x7f3A91 in f", "at … in f"),
            ("commit deadbeefcafe is gone", "commit … is gone"),
            ("job 0197f3a2-c4d8-7b12-a9e0-5c61f38d2b74", "job …"),
            ("connect to 10.0.4.17:5555 failed", "connect to … failed"),
            ("2026-10-01T12:04:31Z", "…T…Z"),
            ("worker-3 exited", "worker-… exited"),
            ("a bad face", "a bad face"),
            ("7" * 500 + "x " + "y" * 5_000, "…x " + "y" * 498),
            ("", ""),
        ],
    )


def test_jobs_with_the_same_cause_are_one_group(broker: CheckedBroker) -> None:
    first = fail(broker, "row 7 is bad", now=1.0)
    last = fail(broker, "row 8 is bad", now=2.0)
    fail(broker, "disk full", now=3.0)
    fail(broker, "row 9 is bad", "t", now=4.0)
    assert groups(broker) == [
        ("s", "row … is bad", "local", 2),
        ("s", "disk full", "local", 1),
        ("t", "row … is bad", "local", 1),
    ]
    part = next(broker.job_registry.kept.quarantine.parts())
    assert (part.first, part.last, list(part.dialects)) == (first, last, ["?"])
    assert broker.job_registry.kept.quarantine.parts_of(part.group) == [part]


def test_jobs_of_each_principal_are_counted_apart_in_one_group(broker: CheckedBroker) -> None:
    for name in ("web", "batch", "web"):
        fail(broker, "no", caller=caller_of(principal_of(broker, name)))
    assert groups(broker) == [("s", "no", "web", 2), ("s", "no", "batch", 1)]
    parts = list(broker.job_registry.kept.quarantine.parts())
    assert parts[0].group == parts[1].group


def test_job_leaves_its_group_when_it_is_retried_released_or_erased() -> None:
    broker = CheckedBroker(outcome_retention=60.0)
    jobs = [fail(broker, f"no {number}") for number in range(4)]
    broker.operator.retry(jobs[0], 1.0)
    broker.operator.release(jobs[1], 1.0)
    assert groups(broker) == [("s", "no …", "local", 2)]
    broker.store_reports.saved(0, 1.0)
    broker.run_until(61.0)
    assert groups(broker) == []


def test_job_returns_to_its_group_if_its_retry_cannot_be_stored(broker: CheckedBroker) -> None:
    job = fail(broker, "no")
    broker.operator.retry(job, 1.0)
    assert groups(broker) == []
    broker.save_all(1.0, problem="disk full")
    assert groups(broker) == [("s", "no", "local", 1)]


def test_jobs_beyond_the_most_groups_are_counted(broker: CheckedBroker) -> None:
    broker.job_registry.kept.quarantine.max_parts = 2
    jobs = [fail(broker, reason) for reason in ("a", "b", "c", "c", "a")]
    assert [each[1] for each in groups(broker)] == ["a", "b"]
    assert broker.job_registry.kept.quarantine.ungrouped == 2
    for job in jobs[1:3]:
        broker.operator.release(job, 1.0)
        broker.withdraw(job, 1.0)
        fail(broker, "c")
    assert [(each[1], each[3]) for each in groups(broker)] == [("a", 2), ("c", 2)]
    assert broker.job_registry.kept.quarantine.ungrouped == 1
