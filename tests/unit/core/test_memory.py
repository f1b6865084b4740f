"""The memory account: payloads and data in transit together stay below max_memory (L6)."""

from __future__ import annotations

import pytest

from dragoman.core.memory import MemoryAccount, Transit
from dragoman.core.options import JobOptions

from .world import Caller, CheckedBroker

WAITS = JobOptions(waits=True)


@pytest.mark.parametrize("kind", list(Transit))
def test_payloads_and_every_kind_in_transit_have_one_limit(kind: Transit) -> None:
    account = MemoryAccount(1_600)
    account.set_transit(kind, 600)
    assert (account.fits(1_000), account.fits(1_001)) == (True, False)
    account.payloads = 900
    assert account.room() == 100
    account.set_transit(kind, 701)
    assert account.room() == -1


def test_kinds_in_transit_add_up() -> None:
    account = MemoryAccount(1_600)
    for kind in Transit:
        account.set_transit(kind, 200)
    assert (account.in_transit, account.room(), account.fits(400), account.fits(401)) == (1_200, 400, True, False)
    account.set_transit(Transit.UNSENT, 0)
    assert (account.in_transit, account.room()) == (1_000, 600)


def test_payloads_leave_a_sixteenth_for_data_in_transit() -> None:
    """If payloads could take all, a job larger than a socket would end its worker, again and again."""
    account = MemoryAccount(1_600)
    assert (account.fits(1_500), account.fits(1_501)) == (True, False)
    account.payloads = 1_500
    assert account.room() == 100
    account.payloads = 9_999  # payloads of restored jobs are never refused
    assert account.room() == 100


def test_unsent_data_is_measured_before_something_is_refused() -> None:
    """It shrinks without a notice. Without this, a broker that was full once would refuse jobs until the next write."""
    account = MemoryAccount(1_600)
    account.set_transit(Transit.UNSENT, 1_600)
    account.measure = lambda: account.set_transit(Transit.UNSENT, 0)
    assert account.fits(1_500)
    account.payloads = 800
    account.set_transit(Transit.UNSENT, 1_600)
    assert account.room() == 800


def test_submit_is_refused_while_data_in_transit_takes_the_memory() -> None:
    broker = CheckedBroker(max_memory=1_600)
    memory, caller = broker.job_registry.memory, Caller()
    broker.call(b"x" * 400)
    memory.set_transit(Transit.BODIES, 1_000)
    assert broker.submit("s", b"x" * 201, caller, WAITS, 0.0) is None
    (answer,) = broker.take()
    assert answer.reason == (  # type: ignore[union-attr]
        "busy: payloads of jobs take 400 and data in transit 1000 of 1600 bytes (max_memory); retry later"
    )
    assert broker.counters.limits_reached == {"max_memory": 1}
    memory.set_transit(Transit.BODIES, 0)
    assert broker.submit("s", b"x" * 201, caller, WAITS, 0.0)


def test_parts_of_results_share_the_memory_with_payloads() -> None:
    broker = CheckedBroker(max_memory=1_600)
    worker = broker.worker(capacity=2)
    job, _ = broker.call(b"x"), broker.call(b"x" * 999)
    broker.take()
    assert job.attempt is not None
    broker.attempts.progress(job.attempt, b"p" * 600, 1.0, is_part=True)
    assert broker.job_registry.memory.transit[Transit.RESULT_PARTS] == 600
    broker.attempts.progress(job.attempt, b"p", 1.0, is_part=True)
    assert broker.job_registry.memory.transit[Transit.RESULT_PARTS] == 0  # no room: its job fails in the end
    assert len(worker.running) == 2
