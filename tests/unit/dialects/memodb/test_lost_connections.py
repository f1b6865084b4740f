"""Lost connections of MemoDB's workers and callers: R64, R65."""

from __future__ import annotations

from dragoman.core.policy import Policy

from .world import (
    World,
    answered,
    beats,
    disconnected,
    given,
    heartbeat,
    job,
    ready,
    result,
)


def test_r64_workers_of_a_lost_connection_are_detached_and_given_nothing() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    ids = [world.worker(side, number) for number in (1, 2, 3)]
    world.cut(side)
    assert [world.state(id) for id in ids] == ["detached"] * 3
    caller.ask(7, job())
    assert world.counters.dispatched == 0
    assert len(world.remarked("connection lost")) == 1


def test_r64_their_lease_runs_on() -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    world.wait(5)
    world.cut(side)
    world.wait(14.9)
    assert world.state(id) == "detached"
    world.wait(0.2)
    assert world.state(id) == "gone"
    assert world.connect().ask(2, heartbeat(id)) == disconnected(2, id)


def test_r64_a_worker_gets_its_heartbeat_when_it_is_back_if_that_came_due_meanwhile() -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    world.wait(9)
    world.cut(side)
    world.wait(3)
    side = world.connect()
    assert side.ask(1, ready()) == beats(1, id)


def test_r64_or_a_job_that_waits() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    world.wait(9)
    world.cut(side)
    world.wait(3)
    caller.ask(7, job())
    side = world.connect()
    assert side.ask(1, ready()) == given(1, id)


def test_r64_a_worker_may_answer_heartbeat_on_a_new_connection() -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    world.wait(10)
    assert side.heard() == beats(1, id)
    side = world.again(side)
    assert side.ask(2, heartbeat(id)) == []
    assert world.state(id) == "idle"


def test_r64_the_result_of_a_busy_worker_may_come_on_a_new_connection() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=100_000)
    side = world.again(side)
    assert world.state(id) == "detached"
    world.wait(50)
    caller.ask(7, job(b"next"))
    assert side.ask(2, result(id)) == given(2, id, b"next")
    assert caller.heard() == answered(501)


def test_r64_so_may_that_of_a_cancelled_job() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    world.cut(side)
    world.broker.withdraw(world.job(), world.now)
    world.wait(30)
    side = world.connect()
    assert side.ask(2, result(id)) == []
    assert world.state(id) == "idle"
    assert caller.heard() == []


def test_detached_longer_than_detach_timeout_is_lost() -> None:
    """D8: the job it held is lost with it."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=-1)
    world.cut(side)
    world.wait(59.9)
    assert world.state(id) == "detached"
    world.wait(0.2)
    assert world.state(id) == "gone"
    assert world.silences == {"lost": 1}
    assert world.connect().ask(2, result(id)) == disconnected(2, id)
    assert caller.heard() == []


def test_detached_longer_than_detach_timeout_with_attempts_left_goes_to_another_worker() -> None:
    world = World(attempts=2, detach_timeout=3)
    side, caller = world.connect(), world.connect()
    world.busy_worker(side, caller)
    world.cut(side)
    world.wait(2)
    side = world.connect()
    other = world.worker(side, 9)
    world.wait(1.3)
    assert side.heard() == given(9, other)


def test_the_run_time_of_a_job_goes_on_while_its_worker_is_detached() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=5_000)
    world.cut(side)
    world.wait(5.1)
    assert world.state(id) == "gone"
    assert world.silences == {"timed out": 1}
    side = world.connect()
    assert world.worker(side, 1) != id


def test_r65_a_job_that_was_written_to_a_dying_connection_is_fetched_by_the_worker_s_resend() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    caller.receive(7, job())
    world.run_once()
    world.worker(world.connect(), 50)
    world.cut(side)  # nobody knows whether the worker has read it
    world.wait(2)
    assert world.counters.dispatched == 1
    side = world.connect()
    assert side.ask(1, ready()) == given(1, id)
    side.ask(2, result(id))
    assert caller.heard() == answered(7)


def test_d8_a_job_whose_bytes_never_left_goes_to_another_worker_and_no_attempt_is_spent() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    other_side = world.connect()
    other = world.worker(other_side, 50)
    side.stream.room = 10
    caller.ask(7, job())
    world.wait(1)
    assert other_side.heard() == []
    world.cut(side)
    assert other_side.heard() == given(50, other)
    assert world.job().spent == 0
    assert world.state(id) == "detached"
    other_side.ask(51, result(other))
    assert caller.heard() == answered(7)
    new = world.connect()
    assert new.ask(1, ready()) == []
    assert world.state(id) == "idle"


def test_d8_a_repeated_request_on_the_stuck_connection_itself_changes_nothing_about_that() -> None:
    """On one connection, a later message cannot have been sent before it."""
    world = World()
    side, caller = world.connect(), world.connect()
    world.worker(side)
    other_side = world.connect()
    other = world.worker(other_side, 50)
    side.stream.room = 10
    caller.ask(7, job())
    side.ask(1, ready())
    world.cut(side)
    assert other_side.heard() == given(50, other)
    assert world.job().spent == 0


def test_d8_if_there_is_no_other_worker_it_waits_for_this_one() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    side.stream.room = 10
    caller.ask(7, job())
    world.cut(side)
    assert world.present == 1
    side = world.connect()
    assert side.ask(1, ready()) == given(1, id)
    assert world.job().spent == 0


def test_d8_a_cancelled_job_whose_bytes_never_left_leaves_its_worker_free() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    side.stream.room = 10
    caller.ask(7, job())
    world.broker.withdraw(world.job(), world.now)
    world.cut(side)
    side = world.connect()
    assert side.ask(1, ready()) == []
    assert world.state(id) == "idle"


def test_a_job_that_timed_out_before_its_bytes_left_leaves_nothing_behind_when_the_connection_ends() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    side.stream.room = 10
    caller.ask(7, job(timeout=1_000))
    world.wait(2)
    assert world.state(id) == "gone"
    world.cut(side)
    assert world.session._heartbeats.armed == 0


def test_a_job_decided_in_the_turn_in_which_the_connection_ends_goes_to_another_worker() -> None:
    world = World()
    side, other_side, caller = world.connect(), world.connect(), world.connect()
    id = world.worker(side)
    other = world.worker(other_side)
    caller.receive(7, job())
    world.drop(side)
    world.run_once()
    assert other_side.heard() == given(1, other)
    assert world.state(id) == "detached"
    assert world.job().spent == 0


def test_a_job_decided_in_the_turn_in_which_its_worker_moves_goes_where_it_is() -> None:
    world = World()
    side, new, caller = world.connect(), world.connect(), world.connect()
    id = world.worker(side)
    caller.receive(7, job())
    world.drop(side)
    new.receive(1, ready())
    world.run_once()
    assert new.heard() == given(1, id)
    assert world.state(id) == "busy"


def test_r64_calls_that_wait_are_kept_for_orphan_grace() -> None:
    world = World()
    caller = world.connect()
    caller.ask(7, job())
    caller.ask(8, job())
    world.cut(caller)
    world.wait(4.9)
    assert world.present == 2
    world.wait(0.2)
    assert world.present == 0
    assert world.silences == {"cancelled": 2}
    assert world.session._callers.waiting == 0
    assert world.connect().ask(7, job()) == []
    assert world.counters.accepted == 3


def test_r64_without_grace_they_end_at_once() -> None:
    world = World(orphan_grace=0.0)
    caller = world.connect()
    caller.ask(7, job())
    world.cut(caller)
    assert world.present == 0


def test_r64_a_call_that_runs_goes_on_and_its_answer_is_kept() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=60_000)
    world.cut(caller)
    world.wait(20)
    assert world.present == 1
    side.ask(2, result(id))
    assert world.counters.unclaimed_results == 0
    assert world.connect().ask(501, job(timeout=60_000)) == answered(501)


def test_r18_a_call_that_lost_its_worker_while_its_caller_was_away_too_long_is_not_started_again() -> None:
    world = World(attempts=2)
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=60_000)
    world.cut(caller)
    world.wait(20)
    assert side.ask(2, heartbeat(id)) == disconnected(2, id)
    world.worker(side, 9)
    world.wait(2)
    assert world.counters.dispatched == 1
    assert world.present == 0


def test_r64_callers_and_workers_of_one_connection_come_back_together() -> None:
    world = World()
    side = world.connect()
    id = world.busy_worker(side, side)
    side.ask(7, job(b"waits"))
    side = world.again(side)
    assert side.ask(501, job()) == []
    assert side.ask(7, job(b"waits")) == []
    assert side.ask(1, ready()) == given(1, id)
    assert side.ask(2, result(id, b"one")) == [*answered(501, b"one"), *given(2, id, b"waits")]
    assert side.ask(3, result(id, b"two")) == answered(7, b"two")
    assert (world.counters.accepted, world.counters.dispatched) == (2, 2)


def test_two_callers_alike_in_everything_whose_connections_are_gone_leave_nothing_behind() -> None:
    world = World()
    one, two = world.connect(), world.connect()
    one.ask(7, job())
    two.ask(7, job())
    world.cut(one)
    world.cut(two)
    world.connect().ask(7, job())
    world.wait(6)
    assert world.present == 1
    assert world.session._callers.waiting == 1
    assert not world.session._callers.orphans


def test_a_refusal_and_the_end_of_the_connection_may_cross_in_one_turn() -> None:
    world = World(policy=Policy(max_jobs=1))
    caller = world.connect()
    caller.ask(1, job())
    caller.receive(2, job(b"refused"))
    caller.receive(2, job(b"refused"))
    caller.receive(2, job(b"refused, and asked for something else"))
    world.drop(caller)
    world.run_once()
    assert world.session._callers.waiting == 1
