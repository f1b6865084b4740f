"""Dispatch of Powerhose jobs: WAKE, GIVE and the job itself (R54, R55)."""

from __future__ import annotations

import pytest

from dragoman.core.options import JobOptions
from dragoman.dialects.powerhose.broker_side import name_of

from .world import (
    FIRST,
    GIVE,
    JOB,
    JOBRES,
    MAX_PAYLOAD,
    PONG,
    SECOND,
    THIRD,
    WAKE,
    Nobody,
    World,
    fields,
)

# -------------------------------------------------------------------- dispatch


def test_a_job_is_offered_then_given_and_its_result_forwarded() -> None:
    world = World()
    bench = world.worker()
    caller = world.call(b"data")
    assert bench.told() == [WAKE]
    bench.say(GIVE)
    (job,) = bench.told()
    id = world.job().id.hex().encode()
    assert job == fields(JOB, id, b"data")
    bench.say(fields(JOBRES, id, b"result"))
    assert caller.told() == [b"result"]
    assert bench.state == "idle"
    assert world.ended == {"done": 1}


def test_callers_may_come_before_workers() -> None:
    world = World()
    caller = world.call()
    world.wait(9)
    bench = world.worker()
    assert bench.work() == b"job"
    assert caller.told() == [b"result"]


def test_d7_the_longest_idle_worker_goes_first_and_who_is_done_goes_last() -> None:
    world = World()
    benches = [world.worker(each) for each in (FIRST, SECOND, THIRD)]
    caller = world.caller()
    for _ in range(2):
        for bench in benches:
            caller.call(b"job")
            assert [each.end.messages() != [] for each in benches] == [each is bench for each in benches]
            bench.say(GIVE)
            bench.job_id = bench.told()[0].split(b":::")[1]
            bench.finish()
            assert caller.told() == [b"result"]


def test_a_worker_is_given_one_job_at_a_time() -> None:
    world = World()
    bench = world.worker()
    caller = world.caller()
    for number in range(3):
        caller.call(b"%d" % number)
    for number in range(3):
        assert bench.accept() == b"%d" % number
        assert bench.told() == []
        bench.finish(b"r%d" % number)
    assert caller.told() == [b"r0", b"r1", b"r2"]


@pytest.mark.parametrize("data", [b"", b"x", b"a:::b", b":::", b"JOBRES:::", bytes(range(256)), b"x" * 9_000])
def test_data_and_results_of_any_bytes_pass_as_they_are(data: bytes) -> None:
    world = World()
    bench = world.worker()
    caller = world.call(data)
    assert bench.accept() == data
    bench.finish(data[::-1])
    assert caller.told() == [data[::-1]]


def test_a_job_is_called_by_the_name_its_caller_gave_it_or_by_its_id() -> None:
    world = World()
    job = world.broker.submit("default", b"", Nobody(), JobOptions(waits=True), world.now)
    assert job is not None
    assert name_of(job) == job.id.hex().encode()
    caller = Nobody()
    caller.job_name = b"seven"  # type: ignore[attr-defined]
    job.callers = (Nobody(), caller)
    assert name_of(job) == b"seven"
    job.callers = ()
    assert name_of(job) == job.id.hex().encode()


# -------------------------------------------------------------------- R54: no GIVE


def test_r54_no_give_in_time_removes_the_worker_and_another_is_asked_without_a_spent_attempt() -> None:
    world = World(attempts=1)
    first, caller = world.asked()
    second = world.worker(SECOND)
    world.wait(0.99)
    assert second.told() == []
    world.wait(0.01)
    assert first.end.is_over
    assert first.state == "resting"
    assert world.job().spent == 0
    assert second.work(b"second") == b"job"
    assert caller.told() == [b"second"]


def test_r54_a_give_that_comes_too_late_meets_a_closed_connection() -> None:
    world = World()
    bench, _ = world.asked()
    world.wait(1)
    assert bench.end.is_over


def test_r54_a_give_just_in_time_counts() -> None:
    world = World()
    bench, caller = world.asked()
    world.wait(0.999)
    bench.say(GIVE)
    bench.job_id = bench.told()[0].split(b":::")[1]
    world.wait(5)
    bench.finish()
    assert caller.told() == [b"result"]


@pytest.mark.parametrize("word", [b"", b"NO", b"give", b"GIVE:::", b"ERROR", b"JOBRES:::x", b"PONG", b"GIVE\0"])
def test_anything_but_give_is_a_refusal_and_removes_the_worker(word: bytes) -> None:
    world = World(attempts=1)
    first, caller = world.asked()
    second = world.worker(SECOND)
    first.say(word)
    assert first.end.is_over
    assert first.state == "away"
    assert world.bad == {}
    assert second.work() == b"job"
    assert caller.told() == [b"result"]


@pytest.mark.parametrize("frames", [(b"GIVE",), (b"x", b"GIVE"), (b"", b"GIVE", b""), (b"", bytes(MAX_PAYLOAD + 1))])
def test_a_give_of_another_shape_is_a_refusal(frames: tuple[bytes, ...]) -> None:
    world = World(attempts=1)
    first, caller = world.asked()
    second = world.worker(SECOND)
    first.end.receive(*frames)
    world.run_once()
    assert first.state == "away"
    assert second.work() == b"job"
    assert caller.told() == [b"result"]


def test_one_that_refused_returns_with_its_next_ping() -> None:
    world = World()
    bench, caller = world.asked()
    bench.say(b"NO")
    assert bench.ping() == [PONG]
    assert bench.work() == b"job"
    assert caller.told() == [b"result"]


def test_r57_an_endpoint_that_does_not_answer_wake_is_asked_after_1_2_4_to_30_seconds() -> None:
    world = World(queue_timeout=1000)
    bench, _ = world.asked()
    world.wait(1)
    pauses = []
    for _ in range(8):
        closed = world.now
        lives = len(bench.lives)
        while len(bench.lives) == lives:
            world.wait(0.25)
            bench.ping()
        assert bench.told() == [WAKE]
        pauses.append(world.now - closed)
        world.wait(1)
        assert bench.state == "resting"
    assert pauses == pytest.approx([1, 2, 4, 8, 16, 30, 30, 30])


def test_r57_the_back_off_begins_anew_after_a_give() -> None:
    world = World(queue_timeout=1000)
    bench, caller = world.asked()
    for rest in (1, 2, 4):
        world.wait(1)
        world.wait(rest)
        bench.ping()
    assert bench.work() == b"job"
    assert caller.told() == [b"result"]
    world.call(b"next")
    assert bench.told() == [WAKE]
    world.wait(1)
    assert bench.post.retry_delay == 1
    world.wait(1)
    bench.ping()
    assert bench.told() == [WAKE]


def test_ten_refusals_let_a_job_rest_for_a_moment() -> None:
    """R8: bounded."""
    world = World()
    benches = [world.worker(f"tcp://192.0.2.1:{9000 + number}") for number in range(11)]
    caller = world.call()
    for bench in benches[:10]:
        assert bench.told() == [WAKE]
        bench.say(b"NO")
    assert benches[10].told() == []
    world.wait(0.1)
    assert benches[10].work() == b"job"
    assert caller.told() == [b"result"]


def test_a_job_that_nobody_takes_ends_when_its_queue_time_is_over() -> None:
    world = World(queue_timeout=2.5)
    caller = world.caller()
    first, second, third = (world.worker(each) for each in (FIRST, SECOND, THIRD))
    caller.call(b"job")
    for bench in (first, second, third):
        assert bench.told() == [WAKE]
        world.wait(1)
    (told,) = caller.told()
    assert told == b"timed out: no worker took it within 2.5 s"
    assert world.counters.dispatched == 3


def test_r8_a_run_time_shorter_than_the_wake_time_does_not_run_while_the_worker_is_only_asked() -> None:
    """No worker has seen the job: no attempt is used, whatever its job_timeout is."""
    world = World(attempts=1, job_timeout=0.5, queue_timeout=20)
    first, caller = world.asked()
    second = world.worker(SECOND)
    world.wait(0.99)
    assert caller.told() == []
    assert world.job().spent == 0
    world.wait(0.01)
    assert second.accept() == b"job"
    world.wait(0.49)
    second.finish(b"in time")
    assert caller.told() == [b"in time"]
    assert first.state == "resting"


def test_the_run_time_begins_with_the_job_and_not_with_wake() -> None:
    world = World(attempts=1, job_timeout=0.5)
    bench, caller = world.asked()
    world.wait(0.9)
    bench.say(GIVE)
    world.wait(0.45)
    assert caller.told() == []
    world.wait(0.05)
    assert caller.told() == [b"timed out: no result within 0.5 s"]
    assert bench.end.is_over


# -------------------------------------------------------------------- R55: a job that cannot be written


def test_r55_a_job_of_which_no_byte_left_is_not_spent() -> None:
    world = World(attempts=1)
    first, caller = world.asked()
    second = world.worker(SECOND)
    first.end.stream.room = 0
    first.say(GIVE)
    assert first.state == "working"
    first.die()
    assert world.job().spent == 0
    assert second.work() == b"job"
    assert caller.told() == [b"result"]


def test_r55_a_job_whose_last_byte_never_left_cannot_have_been_seen() -> None:
    world = World(attempts=1)
    first, caller = world.asked()
    second = world.worker(SECOND)
    first.end.stream.room = 10
    first.say(GIVE)
    first.die()
    assert second.work() == b"job"
    assert caller.told() == [b"result"]


def test_r55_a_job_that_left_whole_is_spent() -> None:
    world = World(attempts=1)
    bench, caller = world.busy()
    bench.die()
    assert caller.told() == [b"lost: its worker's connection ended"]
