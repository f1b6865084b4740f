"""The hot path by numbers that do not depend on the machine: calls, objects and system calls of a job.

They hold on the sources only: compiled functions are not seen by a profiler.
"""

from __future__ import annotations

from call_counts import counting
from dragoman.core.broker import Broker
from dragoman.core.invariants import check
from dragoman.core.model import Attempt, Job, Terms, Wishes
from dragoman.core.policy import Policy
from dragoman.core.recipients import Caller, Recipient
from dragoman.testing.entropy import SeededEntropy


def test_a_crowd_of_held_back_workers_is_walked_once_and_not_by_every_job() -> None:
    """R38. A bug: each job looked at every one of them, to see whether its time was over."""
    broker = Broker(Policy(), SeededEntropy())
    for number in range(1_000):
        worker = broker.join(Recipient(), None, f"w{number}", ("s",), Terms(), 0.0, held_back_until=60.0)
        assert worker is not None
        broker.idle(worker, 0.0)
    service = broker.roster.services["s"]

    def walks(now: float) -> int:
        with counting() as calls:
            for _ in range(50):
                broker.succeed(_attempt(broker.submit("s", b"x", Caller(), Wishes(), now)), b"", now)
        return calls["core.roster", "_trust_again"]

    assert (walks(now=1.0), service.held_back_until) == (0, 60.0)
    assert (walks(now=60.0), service.held_back_until) == (1, float("inf"))
    assert (len(service.idle), len(service.held_back)) == (1_000, 0)
    broker.effects.clear()
    check(broker)


def _attempt(job: Job | None) -> Attempt:
    assert job is not None
    assert job.attempt is not None
    return job.attempt
