"""Results of Powerhose workers, and messages that are not results: R56, R16."""

from __future__ import annotations

import pytest

from .world import (
    GIVE,
    JOBRES,
    MAX_PAYLOAD,
    SECOND,
    World,
    fields,
)


def test_r56_a_worker_may_leave_the_id_out() -> None:
    world = World()
    bench = world.worker()
    caller = world.caller()
    for result in (b"one", b"", b"a:::b", b"x:::y:::z"):
        caller.call(b"job")
        bench.accept()
        bench.say(fields(JOBRES, result))
        assert caller.told() == [result]
    assert bench.state == "idle"


def test_r56_a_foreign_id_after_ids_were_learned_is_spent_and_drops_the_worker() -> None:
    world = World(attempts=1)
    bench, caller = world.busy()
    bench.finish()
    assert caller.told() == [b"result"]
    caller.call(b"next")
    bench.accept()
    bench.say(fields(JOBRES, b"of another job", b"result"))
    assert caller.told() == [b"lost: its worker sent a bad message: foreign job id"]
    assert bench.end.is_over
    assert bench.state == "away"
    assert world.bad == {"foreign job id": 1}


def test_r56_an_earlier_jobs_id_is_foreign() -> None:
    world = World(attempts=1)
    bench, caller = world.busy()
    earlier = bench.job_id
    bench.finish()
    caller.told()
    caller.call(b"next")
    bench.accept()
    bench.say(fields(JOBRES, earlier, b"again"))
    assert caller.ending() == "lost"


def test_r56_one_that_was_never_heard_to_name_ids_may_begin_a_result_with_anything() -> None:
    world = World()
    bench, caller = world.busy()
    bench.say(fields(JOBRES, b"of another job", b"result"))
    assert caller.told() == [b"of another job:::result"]


def test_r56_what_was_learned_is_kept_over_a_new_life() -> None:
    world = World(attempts=1)
    bench, caller = world.busy()
    bench.finish()
    bench.end.cut()
    bench.ping()
    assert bench.state == "idle"
    caller.told()
    caller.call(b"next")
    bench.accept()
    bench.say(fields(JOBRES, b"no id"))
    assert caller.ending() == "lost"


def test_r56_remove_forgets_what_was_learned() -> None:
    world = World()
    bench, caller = world.busy()
    bench.finish()
    caller.told()
    bench.remove()
    bench.ping()
    caller.call(b"next")
    bench.accept()
    bench.say(fields(JOBRES, b"no id"))
    assert caller.told() == [b"no id"]


def test_an_empty_result_is_a_result() -> None:
    world = World()
    bench, caller = world.busy()
    bench.finish(b"")
    assert caller.told() == [b""]


def test_the_id_without_anything_behind_it_is_an_empty_result() -> None:
    world = World()
    bench = world.worker()
    caller = world.caller()
    for _ in range(2):
        caller.call(b"job")
        bench.accept()
        bench.say(fields(JOBRES, bench.job_id))
        assert caller.told() == [b""]
    assert bench.state == "idle"


def test_an_exceptions_text_is_a_result_like_any_other() -> None:
    """The wire has no word for failure."""
    world = World()
    bench, caller = world.busy()
    bench.finish(b"Traceback (most recent call last):\nValueError: no")
    assert caller.told() == [b"Traceback (most recent call last):\nValueError: no"]
    assert world.ended == {"done": 1}


@pytest.mark.parametrize("word", [b"", b"JOBRES", b"GIVE", b"garbage", b"jobres:::x", b"ERROR", b"JOBRES::x"])
def test_garbage_for_jobres_drops_the_worker_and_the_job_goes_to_another(word: bytes) -> None:
    world = World()
    first, caller = world.busy()
    second = world.worker(SECOND)
    first.say(word)
    assert first.end.is_over
    assert first.state == "away"
    assert world.bad == {"garbage for JOBRES": 1}
    assert world.job().spent == 1
    assert second.told() == [], "after a short back-off"
    world.wait(0.2)
    assert second.work() == b"job"
    assert caller.told() == [b"result"]


@pytest.mark.parametrize("frames", [(b"JOBRES:::x",), (b"x", b"JOBRES:::x"), (b"", b"JOBRES:::x", b"y")])
def test_a_jobres_of_another_shape_is_garbage(frames: tuple[bytes, ...]) -> None:
    world = World(attempts=1)
    bench, caller = world.busy()
    bench.end.receive(*frames)
    world.run_once()
    assert caller.ending() == "lost"
    assert bench.state == "away"


def test_a_second_jobres_that_nobody_asked_for_drops_the_worker_and_harms_no_job() -> None:
    world = World(attempts=1)
    first, caller = world.busy()
    second = world.worker(SECOND)
    answer = fields(JOBRES, first.job_id, b"result")
    first.end.receive(b"", answer)
    first.end.receive(b"", answer)
    world.run_once()
    assert caller.told() == [b"result"]
    assert first.state == "away"
    assert world.bad == {"out of step": 1}
    caller.call(b"next")
    assert second.work(b"second") == b"next"
    assert caller.told() == [b"second"]


def test_a_second_jobres_in_the_same_turn_does_not_spend_the_job_that_was_about_to_go_there() -> None:
    world = World(attempts=1)
    first, caller = world.busy()
    caller.call(b"next")
    answer = fields(JOBRES, first.job_id, b"result")
    first.end.receive(b"", answer)
    first.end.receive(b"", answer)
    world.run_once()
    assert caller.told() == [b"result"]
    assert world.job().spent == 0
    second = world.worker(SECOND)
    assert second.work() == b"next"


def test_a_word_from_an_idle_worker_drops_it() -> None:
    world = World()
    bench = world.worker()
    bench.say(GIVE)
    assert bench.state == "away"
    assert world.bad == {"out of step": 1}


def test_r16_a_result_over_max_payload_fails_the_attempt_and_keeps_the_worker() -> None:
    world = World(attempts=1)
    bench, caller = world.busy()
    bench.finish(bytes(MAX_PAYLOAD))
    (told,) = caller.told()
    assert told.startswith(b"failed: its result of ")
    assert b"over max_payload 10000" in told
    assert bench.state == "idle"
    caller.call(b"next")
    assert bench.work() == b"next"


def test_r16_a_result_over_max_payload_is_tried_elsewhere_while_attempts_remain() -> None:
    world = World()
    first, caller = world.busy()
    second = world.worker(SECOND)
    first.finish(bytes(MAX_PAYLOAD))
    world.wait(1.3)
    assert second.work(b"short") == b"job"
    assert caller.told() == [b"short"]
