"""PING and READY of PingPong workers, the first and all later ones: R30 to R35, R47, R49."""

from __future__ import annotations

import pytest

from dragoman.core.effects import DeliverOutcome, Effect
from dragoman.core.model import Caller
from dragoman.core.options import JobOptions
from dragoman.core.recipients import Recipient
from dragoman.core.states import Outcome
from dragoman.dialects.pingpong.editions import Edition
from dragoman.dialects.pingpong.remote_workers import PONG_EVERY
from owners import LOCAL_OWNER

from .world import JOB_COMPLETE, PACKAGE, PING, PONG, READY, World, both, error, finish


class Stranger(Caller, Recipient):
    """A caller of another dialect."""

    dialect = "stranger"

    def __init__(self) -> None:
        super().__init__(self, LOCAL_OWNER)
        self.outcomes: list[tuple[Outcome, str]] = []

    def execute(self, effect: Effect, now: float) -> None:
        assert isinstance(effect, DeliverOutcome)
        self.outcomes.append((effect.outcome, effect.reason))


# -------------------------------------------------------------------- PING: R30, R31, R32, R47, R49


@both
def test_r30_a_ping_from_an_unknown_worker_adopts_it(edition: Edition) -> None:
    world = World(edition=edition)
    worker = world.worker()
    assert world.tell(worker, PING) == [[PONG]]
    assert world.state(worker) == "idle"
    world.call(b"work")
    assert worker.told()[0][0] == b"work"


@both
def test_r30_without_adopt_on_ping_an_unknown_worker_gets_no_pong_until_it_says_ready(edition: Edition) -> None:
    world = World(edition=edition, adopt_on_ping=False)
    worker = world.worker()
    assert world.tell(worker, PING) == []
    assert world.state(worker) == "unknown"
    assert world.tell(worker, READY) == [[PONG]]
    world.wait(1)
    assert world.tell(worker, PING) == [[PONG]]


def test_r31_a_ping_from_an_idle_worker_makes_no_second_entry() -> None:
    world = World()
    worker = world.ready_worker()
    for _ in range(3):
        world.wait(1)
        assert world.tell(worker, PING) == [[PONG]]
    world.call(b"1")
    world.call(b"2")
    assert worker.told() == [[b"1"]]


@both
def test_r32_d1_a_ping_from_a_busy_worker_is_a_life_sign_and_no_second_job_goes_out(edition: Edition) -> None:
    world = World(edition=edition)
    worker, _ = world.busy_worker()
    world.call(b"second")
    for _ in range(5):
        world.wait(1)
        assert world.tell(worker, PING) == [[PONG]]
    assert world.state(worker) == "busy"
    assert world.counters.dispatched == 1


def test_r32_the_ping_that_crossed_the_job_does_not_make_the_worker_idle() -> None:
    world = World()
    worker, _ = world.busy_worker()
    waiting = world.call(b"second")
    assert world.tell(worker, PING) == [[PONG]]
    assert world.state(worker) == "busy"
    assert waiting.told() == []


@both
def test_r47_counts_of_a_ping_come_back_behind_pong(edition: Edition) -> None:
    world = World(edition=edition)
    worker = world.worker()
    assert world.tell(worker, PING, b"1") == [[PONG, b"1"]]
    world.wait(1)
    assert world.tell(worker, PING, b"2", b"x" * 32, b"third") == [[PONG, b"2", b"x" * 32]]
    world.wait(1)
    assert world.tell(worker, PING, b"y" * 33) == [[PONG]]


def test_r47_a_count_that_falls_is_remarked_and_nothing_more() -> None:
    world = World()
    worker = world.worker()
    for count in (b"5", b"6", b"2"):
        world.wait(1)
        assert world.tell(worker, PING, count) == [[PONG, count]]
    assert len(world.remarked("ping count decreased")) == 1
    world.wait(1)
    assert world.tell(worker, PING, b"not a number") == [[PONG, b"not a number"]]
    assert world.state(worker) == "idle"


def test_r49_of_a_flood_of_pings_at_most_one_every_20_ms_is_answered() -> None:
    world = World()
    worker = world.ready_worker()
    answered = 0
    for _ in range(1_000):
        world.wait(0.001)
        answered += len(world.tell(worker, PING))
    assert 40 <= answered <= 50
    assert world.counters.throttled_pings == 1_000 - answered


def test_r49_a_throttled_ping_is_a_life_sign_all_the_same() -> None:
    world = World(worker_expire=3)
    worker = world.ready_worker()
    world.tell(worker, PING)
    world.wait(PONG_EVERY / 2)
    assert world.tell(worker, PING) == []
    world.wait(2.999)
    assert world.state(worker) == "idle"


def test_r43_pong_is_said_while_the_message_is_heard_and_waits_for_no_effect() -> None:
    world = World()
    worker = world.worker()
    world.receive(worker, [b"", PING])
    assert bytes(worker.peer.out[-1]).endswith(PONG)
    world.settle()
    assert worker.told() == [[PONG]]


def test_a_pong_from_a_worker_is_a_life_sign_without_an_answer() -> None:
    """Frames, row result: PONG, where the documents write PONG for PING, is a heartbeat."""
    world = World(worker_expire=3)
    worker = world.ready_worker()
    for _ in range(3):
        world.wait(2)
        assert world.tell(worker, PONG) == []
    assert world.state(worker) == "idle"


@both
@pytest.mark.parametrize("word", [PING, READY])
def test_r88_a_worker_that_was_frozen_and_goes_on_is_counted(edition: Edition, word: bytes) -> None:
    world = World(edition=edition, worker_expire=3)
    worker = world.ready_worker()
    world.wait(4)
    assert world.state(worker) == "unknown"
    world.tell(worker, word)
    assert (world.counters.expired_workers, world.counters.false_expiries) == (1, 1)


def test_r88_a_worker_whose_connection_was_silent_is_counted_when_it_comes_back() -> None:
    """A worker that freezes while it works is removed with its connection (D12)."""
    world = World()
    worker, caller = world.busy_worker()
    named = world.ready_worker(b"w1")
    world.call()
    named.told()
    named.is_frozen = worker.is_frozen = True
    world.wait(20)
    assert world.workers == 0
    assert caller.told() == error("lost: its worker's connection ended")
    world.ready_worker(b"w1")
    world.ready_worker()
    assert world.counters.false_expiries == 1  # one without a routing id is not known again


# -------------------------------------------------------------------- READY again: R33, R34, R35


@both
def test_r33_ready_again_from_an_idle_worker_is_answered_and_changes_nothing(edition: Edition) -> None:
    world = World(edition=edition)
    worker = world.ready_worker()
    assert world.tell(worker, READY) == [[PONG]]
    world.call(b"1")
    world.call(b"2")
    assert [frames[0] for frames in worker.told()] == [b"1"]


@both
def test_r34_ready_within_a_second_of_the_job_may_have_crossed_it(edition: Edition) -> None:
    world = World(edition=edition)
    worker, caller = world.busy_worker()
    world.wait(0.9)
    assert world.tell(worker, READY) == [[PONG]]
    assert world.state(worker) == "busy"
    assert world.counters.ready_while_busy == 1
    finish(world, worker, b"result")
    assert caller.told() == [[b"result"]]


def test_r34_ready_later_than_that_fails_the_attempt_and_frees_the_worker() -> None:
    world = World()
    worker, caller = world.busy_worker()
    world.wait(1.1)
    assert world.tell(worker, READY) == [[PONG]]
    (((_, word, reason),),) = (caller.told(),)
    assert word == b"ERROR"
    assert reason.startswith(b"failed: ")
    assert b"sent READY" in reason
    assert world.state(worker) == "idle"
    assert world.counters.ready_while_busy == 1


def test_r34_in_package_ready_from_a_busy_worker_is_a_heartbeat_and_its_result_counts() -> None:
    """Workers of edition package in the field send READY every third period of PING, on the same socket, while a thread
    of theirs works. Each job longer than that ended failed, and its result was dropped as late."""
    world = World(edition=PACKAGE)
    worker, caller = world.busy_worker()
    waiting = world.call(b"next")
    for _ in range(5):
        world.wait_pinging(worker, 3)
        assert world.tell(worker, READY) == [[PONG]]
        assert world.state(worker) == "busy"
    assert world.counters.ready_while_busy == 5
    assert world.counters.ambiguous_results == 0
    token = world.token(worker)
    assert world.tell(worker, JOB_COMPLETE, token, b"", b"result")[0][0] == b"next"
    assert caller.told() == [[b"result"]]
    assert world.counters.late_results == 0
    finish(world, worker, b"more")
    assert waiting.told() == [[b"more"]]


def test_r34_in_package_the_token_decides_after_ready_too() -> None:
    world = World(edition=PACKAGE)
    worker, caller = world.busy_worker()
    world.wait(3)
    world.tell(worker, READY)
    assert world.tell(worker, JOB_COMPLETE, b"of another job", b"", b"foreign") == [[PONG]]
    assert caller.told() == []
    assert world.state(worker) == "busy"
    assert world.counters.late_results == 1


def test_r34_in_package_a_job_that_was_dropped_ends_within_job_timeout_of_ready() -> None:
    """A caller of another dialect may allow hours, for a result that does not come. Further READYs extend nothing."""
    world = World(edition=PACKAGE, job_timeout=20)
    worker = world.ready_worker()
    stranger = Stranger()
    job = world.broker.submit("default", b"job", stranger, JobOptions(job_timeout=3_600), world.now)
    assert job is not None
    world.settle()
    world.wait(5)
    for _ in range(6):
        world.tell(worker, READY)
        world.wait(3)
    assert job.outcome is None
    world.wait(2.1)
    assert stranger.outcomes == [(Outcome.TIMED_OUT, "no result within 25 s")]
    assert world.state(worker) == "stuck"


def test_r34_in_package_without_job_timeout_ready_ends_nothing() -> None:
    world = World(edition=PACKAGE, job_timeout=0)
    worker, caller = world.busy_worker()
    world.tell(worker, READY)
    world.wait_pinging(worker, 2_000, every=100)
    finish(world, worker, b"result")
    assert caller.told() == [[b"result"]]


def test_r34_d8_with_attempts_left_the_job_goes_to_another_worker() -> None:
    world = World(attempts=2)
    worker, caller = world.busy_worker(b"job")
    other = world.ready_worker()
    world.wait(1.1)
    world.tell(worker, READY)
    world.wait(1.9)
    assert other.told() == [[b"job"]]
    world.tell(other, b"result")
    assert caller.told() == [[b"result"]]


@both
def test_r35_ready_on_a_new_connection_with_the_same_routing_id_is_a_new_life(edition: Edition) -> None:
    world = World(edition=edition)
    former = world.ready_worker(b"w1")
    caller = world.call()
    former.told()
    fresh = world.ready_worker(b"w1")
    assert former.closed is not None
    assert caller.told() == error("lost: its worker came back on a new connection")
    assert world.state(fresh) == "idle"
    assert world.counters.takeovers == 1
    assert len(world.broker.worker_registry.workers) == 1


def test_r35_an_idle_worker_that_restarts_costs_nothing() -> None:
    world = World()
    former = world.ready_worker(b"w1")
    fresh = world.ready_worker(b"w1")
    assert former.is_lost
    caller = world.call(b"job")
    assert fresh.told() == [[b"job"]]
    world.tell(fresh, b"result")
    assert caller.told() == [[b"result"]]


def test_r35_the_end_of_the_old_connection_does_not_end_the_new_life() -> None:
    """A third connection must still find the second under the name."""
    world = World()
    world.ready_worker(b"w1")
    second = world.ready_worker(b"w1")
    assert world.state(second) == "idle"
    third = world.ready_worker(b"w1")
    assert second.is_lost
    assert world.state(third) == "idle"


def test_r35_connections_without_a_routing_id_take_nothing_over() -> None:
    world = World()
    first, second = world.ready_worker(), world.ready_worker()
    assert (world.state(first), world.state(second)) == ("idle", "idle")
    assert world.counters.takeovers == 0


def test_r35_a_caller_with_a_workers_routing_id_takes_nothing_over() -> None:
    """The two ROUTERs have names of their own."""
    world = World()
    worker = world.ready_worker(b"same")
    world.caller(b"same")
    assert world.state(worker) == "idle"


def test_r35_a_caller_that_comes_back_under_its_routing_id_ends_its_former_connection() -> None:
    world = World()
    former = world.caller(b"c")
    world.tell(former, b"job")
    fresh = world.caller(b"c")
    assert former.is_lost
    assert world.present == 0
    assert world.tell(fresh, b"job") == []
    assert world.present == 1


def test_d3_a_routing_id_may_be_used_again_after_its_connection_ended() -> None:
    world = World()
    worker = world.ready_worker(b"w1")
    world.lose(worker)
    world.ready_worker(b"w1")
    assert world.counters.takeovers == 0
