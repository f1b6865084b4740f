"""Exchanges with a worker that break, hang or send wrong sizes: R97, R99, R100."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.states import Outcome

from .world import MAX_PAYLOAD, Call, World, editions, retry

# -------------------------------------------------------------------- R97 and R99: death and silence in an exchange


@editions
def test_r8_a_refused_dial_is_not_an_attempt(world: World, edition: str) -> None:
    fellow, other = world.worker(edition), world.worker()
    world.refusing.add(fellow.id)
    caller = world.submit(attempts=1)
    assert fellow.state == "gone"
    other.finish(other.take())
    assert caller.outcome is Outcome.DONE


def test_r8_a_socket_that_is_not_there_any_more_is_not_an_attempt(world: World) -> None:
    fellow, other = world.worker(), world.worker()
    world.sockets.discard(fellow.id)
    caller = world.submit(attempts=1)
    assert fellow.state == "gone"
    assert world.said("dial rejected") == 1
    other.finish(other.take())
    assert caller.outcome is Outcome.DONE


def test_r8_a_dial_that_hangs_is_not_an_attempt(world: World) -> None:
    fellow, other = world.worker(), world.worker()
    world.hanging.add(fellow.id)
    caller = world.submit(attempts=1)
    world.wait(1)
    world.give_up_dials()
    assert fellow.state == "gone"
    other.finish(other.take())
    assert caller.outcome is Outcome.DONE


@pytest.mark.parametrize("room", [0, 5, 50_000])
def test_r8_a_connection_that_ends_before_all_our_bytes_left_is_not_an_attempt(
    world: World, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fellow, other = world.worker(), world.worker()
    make = Call.__init__

    def small(self: Call, *args: Any) -> None:
        make(self, *args)
        if self.worker_id == fellow.id:
            self.stream.room = room

    monkeypatch.setattr(Call, "__init__", small)
    caller = world.submit(b"x" * 90_000, attempts=1)
    world.calls[-1].cut()
    assert fellow.state == "gone"
    other.finish(other.take(b"x" * 90_000))
    assert caller.outcome is Outcome.DONE


@editions
@pytest.mark.parametrize("end", [0, 3, 8, 9])
def test_r97_a_connection_that_ends_before_its_answer_is_an_attempt(world: World, edition: str, end: int) -> None:
    fellow = world.worker(edition)
    other = world.worker()
    caller = world.submit()
    call = fellow.call("SET_TASK")
    call.feed(call.bytes_of("OK", 300)[:end])
    call.cut()
    assert fellow.state == "gone"
    assert other.calls() == []
    world.wait(0.2)
    other.finish(other.take())
    assert caller.outcome is Outcome.DONE
    assert caller.job is not None
    assert (caller.job.spent, caller.job.deaths) == (1, 1)


@pytest.mark.parametrize("how", ["refused", "no file", "hangs"])
def test_r97_a_worker_that_says_fetch_me_and_is_not_there_is_dropped(world: World, how: str) -> None:
    fellow, caller, call = world.busy(attempts=1)
    {"refused": world.refusing.add, "no file": world.sockets.discard, "hangs": world.hanging.add}[how](fellow.id)
    fellow.fetch_me(call.task)
    world.give_up_dials()
    assert fellow.state == "gone"
    assert caller.outcome is Outcome.LOST


def test_r8_a_job_that_waits_behind_a_fetch_has_not_started(world: World) -> None:
    fellow = world.worker()
    fellow.fetch_me(0)
    fetch = fellow.call("FETCH")
    caller = world.submit(attempts=1)
    fetch.answer("FAILED")
    assert fellow.state == "gone"
    other = world.worker()
    other.finish(other.take())
    assert caller.outcome is Outcome.DONE


def test_r8_a_job_whose_worker_leaves_while_it_is_dialled_has_not_started_and_is_not_sent(world: World) -> None:
    fellow = world.worker()
    world.hanging.add(fellow.id)
    caller = world.submit(attempts=1)
    fellow.pulse("SHUTDOWN")
    assert caller.told == []
    world.hanging.clear()
    world.run_once()
    fellow.call("GET_STATUS").answer()  # something must be said, and its answer read
    other = world.worker()
    other.finish(other.take())
    assert caller.outcome is Outcome.DONE


@pytest.mark.parametrize("answer", ["OK", "BUSY", "cut", "silence"])
def test_a_job_that_is_cancelled_while_its_worker_is_dialled_is_not_sent(world: World, answer: str) -> None:
    fellow, _, first = world.busy()
    fellow.finish(first)
    world.hanging.add(fellow.id)
    caller = world.submit()
    world.withdraw(caller)
    world.hanging.clear()
    world.run_once()
    call = fellow.call("GET_STATUS")
    if answer == "cut":
        call.cut()
    elif answer == "silence":
        world.wait(1.1)
    else:
        call.answer(answer)
    assert fellow.state == "idle"
    world.wait(1)
    fellow.ok(first.task)
    second = world.submit(b"second")
    fellow.finish(fellow.take(b"second"))
    assert second.outcome is Outcome.DONE


@editions
def test_r99_set_task_without_an_answer_is_asked_about_at_the_jobs_time_out_and_works_still(
    world: World, edition: str
) -> None:
    fellow = world.worker(edition, next_pulse=1000)
    caller = world.submit(job_timeout=30, attempts=1)
    call = fellow.call("SET_TASK")
    world.wait(29)
    assert fellow.calls() == []
    world.wait(1.01)
    assert caller.outcome is Outcome.TIMED_OUT
    fellow.call("GET_STATUS").answer("OK", call.task)
    assert fellow.state == "stuck"
    assert call.is_open
    second = world.submit(b"second")
    assert fellow.calls() == []  # its exchange is open still
    call.answer("OK", call.task)
    fellow.finish(fellow.take(b"second"))
    assert second.outcome is Outcome.DONE


@pytest.mark.parametrize("status", ["other task", "no task", "silence", "cut", "refused"])
@editions
def test_r99_set_task_without_an_answer_by_a_worker_that_has_hung(world: World, edition: str, status: str) -> None:
    fellow = world.worker(edition, next_pulse=1000)
    caller = world.submit(job_timeout=30)
    call = fellow.call("SET_TASK")
    if status == "refused":
        world.refusing.add(fellow.id)
    world.wait(30.01)
    if status != "refused":
        asked = fellow.call("GET_STATUS")
        if status == "cut":
            asked.cut()
        elif status == "silence":
            world.wait(1.01)
            assert asked.is_open
        else:
            asked.answer("OK", 0 if status == "no task" else 4711)
    assert fellow.state == "gone"
    assert call.is_open  # it would die of a write that nobody reads
    other = world.worker()
    retry(world)
    other.finish(other.take())
    assert caller.outcome is Outcome.DONE
    call.answer("OK", call.task)
    assert not call.is_open


@editions
def test_r99_a_worker_that_hangs_in_the_middle_of_the_answer_to_fetch(world: World, edition: str) -> None:
    fellow, caller, call = world.busy(edition, job_timeout=1000)
    fellow.fetch_me(call.task)
    fetch = fellow.call("FETCH")
    data = fetch.bytes_of("OK", call.task, b"result")
    fetch.feed(data[:-3])
    world.wait(9.9)
    assert fellow.calls() == []
    world.wait(0.2)
    fellow.call("GET_STATUS").answer("OK", call.task)
    assert fellow.state == "busy"
    fetch.feed(data[-3:])
    fetch.is_answered = True
    world.run_once()
    assert caller.told == [(Outcome.DONE, b"result", "")]


def test_r99_a_worker_that_hangs_in_the_middle_of_the_answer_to_fetch_and_has_forgotten(world: World) -> None:
    fellow, caller, call = world.busy(job_timeout=1000, attempts=1)
    fellow.fetch_me(call.task)
    fetch = fellow.call("FETCH")
    data = fetch.bytes_of("OK", call.task, b"result")
    fetch.feed(data[:-3])
    world.wait(10.1)
    fellow.call("GET_STATUS").answer("OK", 0)
    assert fellow.state == "gone"
    assert caller.outcome is Outcome.LOST
    assert fetch.is_open
    fetch.is_answered = True
    fetch.feed(data[-3:])
    world.wait(10.1)
    assert not fetch.is_open
    assert len(caller.told) == 1


def test_r99_a_status_about_an_exchange_that_has_ended_meanwhile_means_nothing(world: World) -> None:
    fellow = world.worker(next_pulse=1000)
    world.submit(job_timeout=30, attempts=1)
    call = fellow.call("SET_TASK")
    world.wait(30.01)
    status = fellow.call("GET_STATUS")
    call.answer("OK", call.task)
    fellow.fetch_me(call.task)
    fetch = fellow.call("FETCH")
    status.answer("OK", call.task)
    assert fellow.is_known
    fetch.answer("OK", call.task, b"late")
    assert fellow.state == "idle"


@editions
def test_it_is_the_worker_that_closes_an_exchange_and_only_if_it_does_not_do_we(world: World, edition: str) -> None:
    """One that writes its answer in pieces, the last of them empty, would die of a connection that is closed."""
    fellow = world.register(edition)
    world.wait(0.05)
    call = fellow.call("GET_STATUS")
    call.feed(call.bytes_of("OK"))
    call.is_answered = True
    world.run_once()
    assert fellow.state == "idle"
    assert call.is_open
    world.wait(9.9)
    assert call.is_open
    world.wait(0.2)
    assert not call.is_open
    assert world.session._exchanges.idle_connections.armed == 0


def test_bytes_that_come_behind_an_answer_when_it_has_been_heard_change_nothing(world: World) -> None:
    fellow, caller, call = world.busy()
    fellow.fetch_me(call.task)
    fetch = fellow.call("FETCH")
    fetch.feed(fetch.bytes_of("OK", call.task, b"result"))
    fetch.is_answered = True
    world.run_once()
    fetch.feed(b"more")
    world.run_once()
    assert caller.told == [(Outcome.DONE, b"result", "")]
    assert fellow.state == "idle"


def test_pulses_are_answered_while_exchanges_are_open_with_everybody(world: World) -> None:
    fellows = [world.worker() for _ in range(3)]
    for _ in fellows:
        world.submit()
    calls = [fellow.call("SET_TASK") for fellow in fellows]
    for fellow in fellows:
        fellow.ok()
    world.register("shifted")
    for call in calls:
        call.answer("OK", call.task)


# -------------------------------------------------------------------- R100: extra_size that lies


@editions
@pytest.mark.parametrize("size", [MAX_PAYLOAD + 1, 1 << 40, (1 << 64) - 1])
@pytest.mark.parametrize("during", ["SET_TASK", "FETCH", "GET_STATUS"])
def test_r100_more_extra_bytes_than_allowed_drop_the_worker(world: World, edition: str, size: int, during: str) -> None:
    fellow = world.worker(edition, next_pulse=10)
    caller = world.submit(attempts=1)
    call = fellow.call("SET_TASK")
    if during != "SET_TASK":
        call.answer("OK", call.task)
        if during == "FETCH":
            fellow.fetch_me(call.task)
        else:
            world.wait(12.1)
        call = fellow.call(during)
    world.may_close_early = True
    call.feed(call.bytes_of("OK", call.task, b"", size))
    assert call.peer.carrier.holding == 0
    world.run_once()
    assert fellow.state == "gone"
    assert caller.outcome is (Outcome.FAILED if during == "FETCH" else Outcome.LOST)  # R224: only its result is wrong
    assert world.bad == {"over max_payload": 1}
    assert fellow.calls() == []


def test_r100_exactly_as_much_as_allowed_is_a_result(world: World) -> None:
    fellow, caller, call = world.busy()
    fellow.finish(call, bytes(MAX_PAYLOAD))
    assert caller.told == [(Outcome.DONE, bytes(MAX_PAYLOAD), "")]


@pytest.mark.parametrize("during", ["SET_TASK", "FETCH"])
def test_r100_bytes_behind_the_answer_drop_the_worker(world: World, during: str) -> None:
    fellow = world.worker()
    caller = world.submit(attempts=1)
    call = fellow.call("SET_TASK")
    if during == "FETCH":
        call.answer("OK", call.task)
        fellow.fetch_me(call.task)
        call = fellow.call("FETCH")
    call.answer("OK", call.task, b"result", size=5)
    assert fellow.state == "gone"
    assert caller.outcome is Outcome.LOST


def test_r100_fewer_bytes_than_were_said_on_set_task_drop_the_worker(world: World) -> None:
    fellow = world.worker()
    caller = world.submit(attempts=1)
    call = fellow.call("SET_TASK")
    call.feed(call.bytes_of("OK", call.task, b"12", size=5))
    call.cut()
    assert fellow.state == "gone"
    assert caller.outcome is Outcome.LOST


def test_an_answer_of_more_than_64_kib_before_its_extra_bytes_drops_the_worker(world: World) -> None:
    fellow = world.worker()
    caller = world.submit(attempts=1)
    call = fellow.call("SET_TASK")
    world.may_close_early = True
    call.feed((65_537).to_bytes(8, "little"))
    world.run_once()
    assert fellow.state == "gone"
    assert caller.outcome is Outcome.LOST
