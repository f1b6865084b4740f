"""Tasks and their results at the controller: R92 to R96."""

from __future__ import annotations

import pytest

from dragoman.core.states import Outcome

from .world import (
    World,
    editions,
    framed,
    retry,
    second_worker,
)


@editions
@pytest.mark.parametrize("payload", [b"", b"x", bytes(range(256)), b"L" * 90_000])
def test_a_job_is_done(world: World, edition: str, payload: bytes) -> None:
    fellow = world.worker(edition)
    caller = world.submit(payload)
    call = fellow.take(payload)
    assert fellow.state == "busy"
    fellow.finish(call, payload[::-1])
    assert caller.told == [(Outcome.DONE, payload[::-1], "")]
    assert fellow.state == "idle"


@editions
def test_a_worker_that_computes_inside_the_exchange_and_waits_for_the_answer_to_fetch_me(
    world: World, edition: str
) -> None:
    fellow = world.worker(edition)
    caller = world.submit()
    call = fellow.call("SET_TASK")
    world.wait(20)
    fellow.fetch_me(call.task)  # answered, while the exchange is open
    assert fellow.calls() == []
    call.answer("OK", call.task)
    fetch = fellow.call("FETCH")
    fetch.answer("OK", call.task, b"result")
    assert caller.told == [(Outcome.DONE, b"result", "")]


@editions
def test_the_answer_to_fetch_me_goes_out_before_the_worker_is_dialled(world: World, edition: str) -> None:
    fellow, _, call = world.busy(edition)
    world.hanging.add(fellow.id)
    fellow.fetch_me(call.task)  # `pulse` sees that it was answered
    assert world.dialling == 1


@pytest.mark.parametrize("task_id", [0, "own", "previous"])
def test_r95_the_result_is_that_of_the_job_we_gave_whatever_harmless_id_it_has(
    world: World, task_id: int | str
) -> None:
    fellow, _, first = world.busy()
    fellow.finish(first)
    caller = world.submit()
    call = fellow.take()
    fellow.fetch_me(call.task)
    number = {"own": call.task, "previous": first.task, 0: 0}[task_id]
    fellow.call("FETCH").answer("OK", number, b"second")
    assert caller.told == [(Outcome.DONE, b"second", "")]


@editions
def test_r95_a_result_with_a_foreign_id_is_counted_and_the_worker_dropped(world: World, edition: str) -> None:
    fellow, caller, call = world.busy(edition)
    other = second_worker(world)
    fellow.fetch_me(call.task)
    fellow.call("FETCH").answer("OK", 4711, b"whose?")
    assert fellow.state == "gone"
    assert world.counters.late_results == 1
    retry(world)
    other.finish(other.take(), b"mine")
    assert caller.told == [(Outcome.DONE, b"mine", "")]


@editions
def test_r96_task_failed_on_fetch_tries_another_worker(world: World, edition: str) -> None:
    fellow, caller, call = world.busy(edition)
    other = second_worker(world)
    fellow.fetch_me(call.task)
    fellow.call("FETCH").answer("TASK_FAILED", call.task, b"no such table")
    assert fellow.state == "idle"
    retry(world)
    assert fellow.calls() == []
    other.finish(other.take())
    assert caller.outcome is Outcome.DONE


@editions
@pytest.mark.parametrize("during", ["SET_TASK", "FETCH"])
def test_r96_the_callers_are_told_why_the_last_one_failed(world: World, edition: str, during: str) -> None:
    fellow = world.worker(edition)
    caller = world.submit(attempts=1)
    call = fellow.call("SET_TASK")
    if during == "FETCH":
        call.answer("OK", call.task)
        fellow.fetch_me(call.task)
        call = fellow.call("FETCH")
    call.answer("TASK_FAILED", 0, b"division by \xff zero\n")
    assert caller.told == [(Outcome.FAILED, b"", "division by \ufffd zero")]
    assert fellow.state == "idle"
    again = world.submit(b"next")
    fellow.finish(fellow.take(b"next"))
    assert again.outcome is Outcome.DONE


def test_r96_an_error_without_a_text_and_one_with_a_very_long_text(world: World) -> None:
    fellow = world.worker()
    caller = world.submit(attempts=1)
    fellow.call("SET_TASK").answer("TASK_FAILED")
    assert caller.told == [(Outcome.FAILED, b"", "its worker answered TASK_FAILED")]
    caller = world.submit(attempts=1)
    fellow.call("SET_TASK").answer("TASK_FAILED", 0, b"x" * 50_000)
    assert caller.told == [(Outcome.FAILED, b"", "x" * 4_000)]


def test_r96_task_failed_inside_the_exchange_goes_to_another_worker_and_three_times_is_the_end(world: World) -> None:
    fellows = [world.worker() for _ in range(3)]
    caller = world.submit()
    for fellow in fellows:
        fellow.call("SET_TASK").answer("TASK_FAILED", 0, b"cannot")
        world.wait(10)
    assert caller.told == [(Outcome.FAILED, b"", "cannot")]
    assert [fellow.state for fellow in fellows] == ["idle"] * 3


@editions
@pytest.mark.parametrize("during", ["SET_TASK", "FETCH", "GET_STATUS"])
@pytest.mark.parametrize("error", ["FAILED", 99])
def test_r97_failed_and_unknown_codes_drop_the_worker_and_its_job_goes_on_once(
    world: World, edition: str, during: str, error: str | int
) -> None:
    fellow = world.worker(edition, next_pulse=10)
    caller = world.submit()
    call = fellow.call("SET_TASK")
    other = second_worker(world)
    if during != "SET_TASK":
        call.answer("OK", call.task)
        if during == "FETCH":
            fellow.fetch_me(call.task)
        else:
            world.wait(12.1)
        call = fellow.call(during)
    call.answer(error, 0, b"broken" if error == "FAILED" else b"")
    assert fellow.state == "gone"
    reasons = [said["reason"] for said in world.remarked("worker left")]
    assert any("broken" in reason or "error 99" in reason for reason in reasons)
    retry(world)
    task = other.take()
    assert world.counters.dispatched == 2
    other.finish(task)
    assert caller.outcome is Outcome.DONE
    assert caller.job is not None
    assert caller.job.spent == 1


def test_r97_an_unreadable_answer_drops_the_worker(world: World) -> None:
    fellow = world.worker()
    caller = world.submit(attempts=1)
    call = fellow.call("SET_TASK")
    call.is_answered = True
    call.feed(framed(b"\xff\xff"))
    world.run_once()
    assert fellow.state == "gone"
    assert caller.outcome is Outcome.LOST
    assert world.bad


def test_an_answer_to_set_task_that_means_nothing_there_drops_the_worker(world: World) -> None:
    fellow = world.worker()
    caller = world.submit(attempts=1)
    fellow.call("SET_TASK").answer("NO_FETCH")
    assert fellow.state == "gone"
    assert caller.outcome is Outcome.LOST


@editions
def test_r92_several_fetch_mes_collapse_into_one_fetch(world: World, edition: str) -> None:
    fellow, caller, call = world.busy(edition)
    for _ in range(5):
        fellow.fetch_me(call.task)
    fetch = fellow.call("FETCH")
    fetch.answer("OK", call.task, b"result")
    assert caller.outcome is Outcome.DONE
    for each in fellow.calls():  # at most one more was asked for while the first was open
        assert each.word == "FETCH"
        each.answer("NO_FETCH")
    assert fellow.calls() == []
    assert fellow.state == "idle"


def test_r92_several_fetch_mes_inside_the_set_task_exchange_collapse_into_one_fetch(world: World) -> None:
    fellow = world.worker()
    world.submit()
    call = fellow.call("SET_TASK")
    for _ in range(5):
        fellow.fetch_me(call.task)
    call.answer("OK", call.task)
    fellow.call("FETCH").answer("OK", 0, b"result")
    assert fellow.calls() == []


def test_r92_fetch_me_of_the_previous_task_is_answered_and_not_obeyed_while_a_newer_is_held(world: World) -> None:
    fellow, _, first = world.busy()
    fellow.finish(first)
    caller = world.submit(b"second")
    call = fellow.take(b"second")
    fellow.fetch_me(first.task)
    assert fellow.calls() == []
    fellow.finish(call)
    assert caller.outcome is Outcome.DONE


def test_r92_fetch_me_with_nothing_held_is_fetched_and_dropped(world: World) -> None:
    fellow, _, call = world.busy()
    fellow.finish(call)
    for task in (call.task, 0):
        fellow.fetch_me(task)
        fellow.call("FETCH").answer("OK", task, b"again")
    assert world.counters.late_results == 2
    assert fellow.state == "idle"


def test_an_old_result_never_ends_a_new_job(world: World) -> None:
    """A new job is given while the late result of an earlier one is being fetched: FETCH first, then SET_TASK."""
    fellow, first, call = world.busy()
    world.withdraw(first)
    fellow.fetch_me(call.task)
    fetch = fellow.call("FETCH")
    second = world.submit(b"second")
    assert fellow.calls() == []
    fetch.answer("OK", call.task, b"old")
    assert second.told == []
    assert world.counters.late_results == 1
    fellow.finish(fellow.take(b"second"), b"new")
    assert second.told == [(Outcome.DONE, b"new", "")]


def test_always_fetch_before_the_next_set_task(world: World) -> None:
    fellow = world.worker()
    world.hanging.add(fellow.id)
    fellow.fetch_me(0)
    world.submit()
    world.hanging.clear()
    world.run_once()
    fellow.call("FETCH").answer("NO_FETCH")
    fellow.call("SET_TASK")


@editions
def test_r93_no_fetch_is_not_the_end_and_three_of_them_are_looked_into(world: World, edition: str) -> None:
    fellow, caller, call = world.busy(edition)
    for count in range(1, 4):
        fellow.fetch_me(call.task)
        fellow.call("FETCH").answer("NO_FETCH", call.task)
        assert fellow.state == "busy"
        if count < 3:
            assert fellow.calls() == []
    fellow.call("GET_STATUS").answer("OK", call.task)
    assert fellow.state == "busy"  # it works at it still
    fellow.fetch_me(call.task)
    fellow.call("FETCH").answer("OK", call.task, b"at last")
    assert caller.told == [(Outcome.DONE, b"at last", "")]


@editions
@pytest.mark.parametrize("names", [0, 4711])
def test_r93_three_no_fetches_and_a_status_of_another_task_lose_the_result(
    world: World, edition: str, names: int
) -> None:
    fellow, caller, call = world.busy(edition)
    other = second_worker(world)
    for _ in range(3):
        fellow.fetch_me(call.task)
        fellow.call("FETCH").answer("NO_FETCH")
    fellow.call("GET_STATUS").answer("OK", names)
    assert fellow.state == "idle"
    retry(world)
    other.finish(other.take())
    assert caller.outcome is Outcome.DONE
    assert world.said("attempt lost") == 1


def test_r93_a_fetch_me_that_comes_while_the_status_is_asked_is_fetched_first(world: World) -> None:
    fellow, caller, call = world.busy()
    for _ in range(3):
        fellow.fetch_me(call.task)
        fellow.call("FETCH").answer("NO_FETCH")
    status = fellow.call("GET_STATUS")
    fellow.fetch_me(call.task)
    fetch = fellow.call("FETCH")
    status.answer("OK", 0)
    fetch.answer("OK", call.task, b"result")
    assert caller.told == [(Outcome.DONE, b"result", "")]


@editions
@pytest.mark.parametrize("cut_after", ["nothing", "length", "head", "some bytes"])
def test_r94_a_connection_that_breaks_inside_the_answer_to_fetch_is_tried_once_more(
    world: World, edition: str, cut_after: str
) -> None:
    fellow, caller, call = world.busy(edition)
    fellow.fetch_me(call.task)
    fetch = fellow.call("FETCH")
    data = fetch.bytes_of("OK", call.task, b"result" * 1000)
    ends = {"nothing": 0, "length": 8, "head": len(data) - 6000, "some bytes": len(data) - 1}
    fetch.feed(data[: ends[cut_after]])
    fetch.cut()
    fellow.call("FETCH").answer("OK", call.task, b"result")
    assert caller.told == [(Outcome.DONE, b"result", "")]
    assert fellow.state == "idle"


@editions
def test_r94_no_fetch_after_a_broken_fetch_is_a_lost_result(world: World, edition: str) -> None:
    fellow, caller, call = world.busy(edition)
    other = second_worker(world)
    fellow.fetch_me(call.task)
    fellow.call("FETCH").cut()
    fellow.call("FETCH").answer("NO_FETCH")
    assert fellow.state == "idle"
    retry(world)
    other.finish(other.take())
    assert caller.outcome is Outcome.DONE


def test_r94_a_fetch_that_breaks_twice_is_the_end_of_that_attempt(world: World) -> None:
    fellow, caller, call = world.busy(attempts=1)
    fellow.fetch_me(call.task)
    fellow.call("FETCH").cut()
    fellow.call("FETCH").cut()
    assert caller.outcome is Outcome.LOST
    assert fellow.calls() == []


def test_r94_what_broke_with_an_earlier_job_is_not_held_against_the_next(world: World) -> None:
    fellow, first, call = world.busy()
    world.withdraw(first)
    fellow.fetch_me(call.task)
    fellow.call("FETCH").cut()
    fellow.call("FETCH").answer("NO_FETCH")
    second = world.submit(b"second")
    call = fellow.take(b"second")
    fellow.fetch_me(call.task)
    fellow.call("FETCH").answer("NO_FETCH")
    assert fellow.state == "busy"  # one is no reason yet
    fellow.finish(call)
    assert second.outcome is Outcome.DONE


@editions
def test_two_pulses_of_a_worker_that_has_forgotten_its_task_and_nothing_to_fetch(world: World, edition: str) -> None:
    fellow, caller, call = world.busy(edition)
    other = second_worker(world)
    world.wait(1)
    fellow.ok(0)
    assert fellow.calls() == []
    world.wait(1)
    fellow.ok(0)
    fellow.call("FETCH").answer("NO_FETCH")
    assert fellow.state == "idle"
    retry(world)
    other.finish(other.take())
    assert caller.outcome is Outcome.DONE
    assert call.task == 1


def test_two_fetch_mes_of_a_worker_that_always_names_the_task_before(world: World) -> None:
    """One may be left from earlier; two that came after its SET_TASK are not."""
    fellow, _, first = world.busy()
    fellow.finish(first)
    caller = world.submit()
    fellow.take()
    world.wait(1)
    fellow.fetch_me(first.task)
    assert fellow.calls() == []
    world.wait(1)
    fellow.fetch_me(first.task)
    fellow.call("FETCH").answer("OK", first.task, b"result")
    assert caller.told == [(Outcome.DONE, b"result", "")]


def test_two_pulses_of_a_worker_that_has_forgotten_to_say_fetch_me(world: World) -> None:
    fellow, caller, call = world.busy()
    world.wait(1)
    fellow.ok(0)
    fellow.ok(0)
    fellow.call("FETCH").answer("OK", call.task, b"result")
    assert caller.outcome is Outcome.DONE


def test_two_idle_pulses_count_only_in_a_row(world: World) -> None:
    fellow, _, call = world.busy()
    world.wait(1)
    for task in (0, call.task, 0, call.task, 0):
        fellow.ok(task)
    assert fellow.calls() == []


def test_a_worker_that_reports_task_0_for_ever_and_answers_no_fetch_does_not_hold_a_job_for_ever(world: World) -> None:
    fellows = [world.worker() for _ in range(3)]
    caller = world.submit(job_timeout=100_000)
    for fellow in fellows:
        fellow.take()
        world.wait(1)
        fellow.ok(0)
        fellow.ok(0)
        fellow.call("FETCH").answer("NO_FETCH")
        world.wait(10)
    assert caller.outcome is Outcome.LOST
