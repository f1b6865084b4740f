"""Every row and decision of the page of Worker-Controller, and R81 to R100, over the real line and carriers."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.model import Outcome
from dragoman.dialects.controller import session as session_module

from .world import MAX_PAYLOAD, ROOT, STRANGER, UID, Call, Fellow, Told, World, framed, numbers, pulse

editions = pytest.mark.parametrize("edition", ["seed", "shifted"])


@pytest.fixture
def world() -> World:
    return World()


def second_worker(world: World, edition: str = "seed") -> Fellow:
    return world.worker(edition)


def retry(world: World) -> None:
    """Wait as long as a job rests after its first attempt."""
    world.wait(2.0)


# -------------------------------------------------------------------- R81 to R84: who comes to the controller's socket


@editions
def test_register_is_answered_with_an_id_and_the_connection_is_closed(world: World, edition: str) -> None:
    visitor = world.visit()
    visitor.say(pulse("REGISTER", edition))
    world.turn()
    told = visitor.told(edition)
    assert told == Told("OK", 1 if edition == "seed" else 2)
    assert visitor.is_closed


def test_the_vectors_of_the_page_for_a_first_worker_of_each_edition() -> None:
    for sent, answered in (("203c", "1001"), ("0802203c", "08011002")):
        world = World()
        visitor = world.visit()
        visitor.say(framed(bytes.fromhex(sent)))
        world.turn()
        assert visitor.stream.taken == framed(bytes.fromhex(answered))


def test_the_vectors_of_the_page_for_control_messages() -> None:
    for edition, fetch, restart, task in (("seed", "0801", "", "0802100b"), ("shifted", "0802", "0801", "0803100b")):
        world = World()
        fellow = world.worker(edition)
        world.submit(b"hello world")
        call = fellow.call("SET_TASK")
        assert call.stream.taken == framed(bytes.fromhex(task) + b"\x18\x01", b"hello world")
        call.answer("OK", 1)
        fellow.fetch_me(1)
        call = fellow.call("FETCH")
        assert call.stream.taken == framed(bytes.fromhex(fetch))
        call.answer("OK", 1, b"r")
        world.broker.drain(fellow.station.worker, world.now)
        world.turn()
        assert fellow.call("RESTART").stream.taken == framed(bytes.fromhex(restart))


def test_r83_eight_zero_bytes_are_a_register_and_get_the_default_lease(world: World) -> None:
    visitor = world.visit()
    visitor.say(bytes(8))
    world.turn()
    assert visitor.told() == Told("OK", 1)
    world.wait(11.99)
    assert 1 in world.session._stations
    world.wait(0.02)
    assert 1 not in world.session._stations


def test_r81_a_pulse_may_come_byte_by_byte(world: World) -> None:
    visitor = world.visit()
    for byte in pulse("REGISTER", "shifted"):
        assert visitor.told() is None
        visitor.say(bytes([byte]))
    world.turn()
    assert visitor.told("shifted") == Told("OK", 2)


@pytest.mark.parametrize("end", range(10))
def test_r81_a_pulse_that_ends_early_changes_nothing(world: World, end: int) -> None:
    visitor = world.visit()
    visitor.say(pulse("REGISTER")[:end])
    visitor.hang_up()
    assert not world.session._stations
    assert world.session._visits.armed == 0


@pytest.mark.parametrize("length", [65_537, 1 << 32, (1 << 64) - 1])
def test_r81_a_length_beyond_64_kib_is_answered_with_failed(world: World, length: int) -> None:
    visitor = world.visit()
    visitor.say(length.to_bytes(8, "little"))
    world.turn()
    assert visitor.told() == Told("FAILED")
    assert visitor.is_closed
    assert world.bad == {"head too long": 1}


def test_r81_bytes_behind_the_pulse_are_answered_with_failed_and_it_is_not_obeyed(world: World) -> None:
    visitor = world.visit()
    visitor.say(pulse("REGISTER") + b"x")
    world.turn()
    assert visitor.told() == Told("FAILED")
    assert visitor.is_closed
    assert not world.session._stations


def test_r81_a_pulse_and_another_behind_it_are_answered_with_failed_once(world: World) -> None:
    fellow = world.worker()
    visitor = world.visit()
    visitor.say(pulse("SHUTDOWN", worker_id=fellow.id) * 2)
    world.turn()
    assert visitor.told() == Told("FAILED")
    assert fellow.state == "idle"


@pytest.mark.parametrize("edition", ["seed", "shifted"])
def test_an_unreadable_pulse_is_answered_with_failed_in_the_listeners_edition(edition: str) -> None:
    world = World(edition=edition)
    fellow = world.worker(edition)
    visitor = world.visit()
    visitor.say(framed(b"\xff\xff\xff"))
    world.turn()
    assert visitor.told(edition) == Told("FAILED")
    assert visitor.is_closed
    assert world.bad == {"unreadable": 1}
    assert fellow.state == "idle"
    visitor = world.visit()
    visitor.say(b"\xff" * 8)
    world.turn()
    assert visitor.told(edition) == Told("FAILED")


def test_r82_connect_and_close_is_nothing(world: World) -> None:
    world.visit().hang_up()
    assert not world.session._stations
    assert world.remarks == []
    assert world.bad == {}


def test_connect_and_say_nothing_is_ended_after_a_while(world: World) -> None:
    visitor, slow = world.visit(), world.visit()
    slow.say(b"\x02")
    world.wait(9.9)
    assert not visitor.is_closed
    world.wait(0.2)
    assert visitor.is_closed
    assert slow.is_closed
    assert not world.session._stations


def test_r84_who_is_not_allowed_is_closed_before_a_byte_is_parsed(world: World) -> None:
    visitor = world.visit(STRANGER)
    visitor.say(pulse("REGISTER"))
    world.turn()
    assert visitor.is_closed
    assert visitor.told() is None
    assert not world.session._stations
    assert world.said("peer refused") == 1


def test_r84_root_may_come_in_and_others_that_the_url_names(world: World) -> None:
    assert world.worker(address=ROOT).state == "idle"
    other = World(uids=(STRANGER,))
    assert other.worker(address=STRANGER).state == "idle"
    visitor = other.visit(UID)
    visitor.say(pulse("REGISTER"))
    other.turn()
    assert visitor.told() is None


def test_r84_beyond_50_registers_a_second_the_answers_wait_and_pulses_do_not(world: World) -> None:
    fellow = world.worker()
    world.wait(0.95)
    visitors = [world.visit() for _ in range(120)]
    for visitor in visitors:
        visitor.say(pulse("REGISTER"))
    world.turn()

    def answered() -> int:
        return sum(visitor.told() is not None for visitor in visitors)

    assert answered() == 50
    assert all(visitor.told() for visitor in visitors[:50])
    fellow.ok()
    world.wait(1)
    assert answered() == 100
    world.wait(1)
    assert answered() == 120
    ids = [told.worker_id for told in (visitor.told() for visitor in visitors) if told is not None]
    assert ids == sorted(set(ids))


def test_r84_who_does_not_wait_for_its_turn_is_not_registered(world: World) -> None:
    visitors = [world.visit() for _ in range(150)]
    for visitor in visitors:
        visitor.say(pulse("REGISTER"))
    for visitor in visitors[50:130]:
        visitor.hang_up()
    assert len(world.session._stations) == 50
    world.wait(1)
    assert len(world.session._stations) == 70
    assert not world.session._waiting


def test_r84_too_many_workers_of_one_user_are_refused_and_others_are_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert session_module.WORKERS_A_UID == 10_000
    monkeypatch.setattr(session_module, "WORKERS_A_UID", 3)
    fellows = [world.worker() for _ in range(3)]
    visitor = world.visit()
    visitor.say(pulse("REGISTER", "shifted"))
    world.turn()
    assert visitor.told("shifted") == Told("FAILED")
    assert visitor.is_closed
    world.worker(address=ROOT)
    fellows[0].pulse("SHUTDOWN")
    assert world.worker().state == "idle"


# -------------------------------------------------------------------- R85: ids, and which edition they name


def test_r85_ids_rise_are_never_given_twice_and_name_their_edition(world: World) -> None:
    fellows = [world.worker(edition) for edition in ("seed", "shifted", "shifted", "seed", "seed", "shifted")]
    ids = [fellow.id for fellow in fellows]
    assert ids == sorted(set(ids))
    assert [id % 2 for id in ids] == [1, 0, 0, 1, 1, 0]
    for fellow in fellows:
        fellow.pulse("SHUTDOWN")
    assert world.worker().id > ids[-1]


@pytest.mark.parametrize("first", [0, 1, 2, 7, 4096, (1 << 32) + 1])
@editions
def test_r85_all_ids_are_at_least_the_first_free_one(first: int, edition: str) -> None:
    world = World(first_id=first)
    fellow = world.worker(edition)
    assert fellow.id >= max(first, 1) - first % 2
    assert fellow.id > first - first % 2
    world.submit()
    assert fellow.call("SET_TASK").task > first - first % 2


def test_r85_task_ids_rise_and_are_never_used_twice(world: World) -> None:
    fellow, other = world.worker(), world.worker("shifted")
    tasks = []
    for _ in range(3):
        callers = [world.submit(), world.submit()]
        for each in (fellow, other):
            call = each.take()
            tasks.append(call.task)
            each.finish(call)
        assert [caller.outcome for caller in callers] == [Outcome.DONE] * 2
    assert tasks == list(range(1, 7))


@editions
def test_after_a_restart_a_worker_of_either_edition_hears_unknown_id_and_registers_anew(edition: str) -> None:
    world = World()
    fellow = world.worker(edition)
    world.restart(1000)
    world.sockets.add(fellow.id)
    assert fellow.pulse("OK") == Told("UNKNOWN_ID")
    assert fellow.pulse("FETCH_ME") == Told("UNKNOWN_ID")
    assert fellow.pulse("SHUTDOWN") == Told("UNKNOWN_ID")
    assert not world.session._stations
    anew = world.worker(edition)
    assert anew.id > 1000
    assert anew.id % 2 == fellow.id % 2


@editions
def test_a_worker_that_registers_anew_with_its_old_id_in_the_struct_is_a_new_one(world: World, edition: str) -> None:
    fellow = world.worker(edition)
    visitor = world.visit()
    visitor.say(pulse("REGISTER", edition, worker_id=fellow.id, task_id=77))
    world.turn()
    told = visitor.told(edition)
    assert told == Told("OK", fellow.id + 2)
    assert fellow.state == "idle"


@editions
def test_after_a_restart_a_register_with_an_old_id_in_the_struct_is_a_register(edition: str) -> None:
    world = World(first_id=1000)
    visitor = world.visit()
    visitor.say(pulse("REGISTER", edition, worker_id=7 if edition == "seed" else 8, task_id=3))
    world.turn()
    assert visitor.told(edition) == Told("OK", 1001 if edition == "seed" else 1002)


def test_the_url_may_fix_the_edition() -> None:
    world = World(edition="shifted")
    visitor = world.visit()
    visitor.say(pulse("REGISTER", "seed"))  # no type: not a number of this edition
    world.turn()
    assert visitor.told("shifted") == Told("UNKNOWN_TYPE")
    assert world.worker("shifted").state == "idle"


# -------------------------------------------------------------------- R86 and R87: booting


def test_a_worker_is_idle_when_it_has_answered_on_its_socket(world: World) -> None:
    fellow = world.register()
    world.submit()
    world.wait(0.049)
    assert fellow.calls() == []
    world.wait(0.002)
    status = fellow.call("GET_STATUS")
    assert fellow.state == "booting"
    status.answer()
    assert fellow.state == "busy"
    fellow.call("SET_TASK")


@pytest.mark.parametrize("kind", ["OK", "FETCH_ME"])
def test_a_worker_is_idle_at_its_first_pulse_if_that_is_first(world: World, kind: str) -> None:
    fellow = world.register(listens=False)
    world.wait(1)
    world.sockets.add(fellow.id)
    fellow.pulse(kind)
    assert fellow.state == "idle"


def test_r87_its_socket_is_tried_every_50_ms_for_5_s(world: World) -> None:
    fellow = world.register(listens=False)
    world.wait(0.42)
    assert world.reached == [fellow.id] * 8
    world.wait(4.58)
    tries = len(world.reached)
    assert 95 <= tries <= 100
    world.wait(20)
    assert len(world.reached) == tries
    assert fellow.state == "booting"
    assert world.said("worker not dialled") == 0
    world.sockets.add(fellow.id)
    fellow.ok()
    assert fellow.state == "idle"


def test_r87_a_refused_dial_while_booting_is_tried_again(world: World) -> None:
    fellow = world.register()
    world.refusing.add(fellow.id)
    world.wait(1)
    assert fellow.state == "booting"
    world.refusing.clear()
    world.wait(0.1)
    fellow.call("GET_STATUS").answer()
    assert fellow.state == "idle"


def test_r86_a_worker_that_never_heard_of_its_registration_is_dropped_with_its_lease(world: World) -> None:
    fellow = world.register(next_pulse=7, listens=False)
    world.wait(8.9)
    assert fellow.state == "booting"
    world.wait(0.2)
    assert fellow.state == "gone"


def test_a_boot_look_that_is_not_answered_is_repeated_and_read_all_the_same(world: World) -> None:
    fellow = world.register()
    world.wait(2.2)
    first, second, *_ = calls = fellow.calls()
    assert [call.word for call in calls] == ["GET_STATUS"] * len(calls)
    assert fellow.state == "booting"
    first.answer()
    assert fellow.state == "booting"
    assert second.is_open
    calls[-1].answer()
    assert fellow.state == "idle"
    second.answer()
    world.wait(10)
    assert fellow.calls() == []
    assert fellow.state == "idle"


def test_an_ok_pulse_while_the_boot_look_is_open_gives_it_work_at_once(world: World) -> None:
    fellow = world.register()
    world.wait(0.05)
    status = fellow.call("GET_STATUS")
    world.submit()
    fellow.ok()
    task = fellow.call("SET_TASK")
    status.answer()
    task.answer("OK", task.task)
    assert fellow.state == "busy"


def test_r91_another_user_listens_on_the_workers_socket_and_gets_no_job(world: World) -> None:
    fellow = world.worker()
    world.listening_as[fellow.id] = STRANGER
    caller = world.submit()
    assert fellow.calls() == []
    assert fellow.state == "gone"
    assert world.said("worker not trusted") == 1
    other = world.worker()
    other.finish(other.take())
    assert caller.outcome is Outcome.DONE
    assert caller.job is not None
    assert caller.job.spent == 0


# -------------------------------------------------------------------- R88 and R89: pulses of somebody else


@editions
@pytest.mark.parametrize("kind", ["OK", "FETCH_ME", "SHUTDOWN"])
def test_r88_a_dropped_id_is_unknown_and_counted(world: World, edition: str, kind: str) -> None:
    fellow = world.worker(edition)
    fellow.pulse("SHUTDOWN")
    assert world.counters.false_expiries == 0
    assert fellow.pulse(kind) == Told("UNKNOWN_ID")
    assert world.counters.false_expiries == 1
    assert not world.session._stations


def test_r88_an_id_that_was_never_given_is_unknown_and_not_counted(world: World) -> None:
    visitor = world.visit()
    visitor.say(pulse("OK", worker_id=77))
    world.turn()
    assert visitor.told() == Told("UNKNOWN_ID")
    assert world.counters.false_expiries == 0


def test_r88_dropped_ids_are_forgotten_by_time_and_by_number(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "DROPPED_KEPT", 2)
    fellows = [world.worker() for _ in range(3)]
    for fellow in fellows:
        fellow.pulse("SHUTDOWN")
    assert list(world.session._dropped) == [fellow.id for fellow in fellows[1:]]
    world.wait(601)
    last = world.worker()
    last.pulse("SHUTDOWN")
    assert list(world.session._dropped) == [last.id]


@pytest.mark.parametrize("kind", ["OK", "FETCH_ME", "SHUTDOWN"])
def test_r89_a_pulse_of_another_user_is_not_the_workers(world: World, kind: str) -> None:
    fellow, _, _ = world.busy(next_pulse=10)
    assert fellow.pulse(kind, address=ROOT, next_pulse=1000) == Told("UNKNOWN_ID")
    assert fellow.state == "busy"
    assert fellow.calls() == []
    world.wait(11.9)
    assert fellow.state == "busy"
    world.wait(0.2)
    fellow.call("GET_STATUS")


@editions
def test_an_unknown_type_is_answered_whatever_the_id(world: World, edition: str) -> None:
    fellow, _, _ = world.busy(edition)
    assert fellow.pulse(9) == Told("UNKNOWN_TYPE")
    assert fellow.state == "busy"
    assert world.bad == {"unknown type": 1}
    stranger = Fellow(world, fellow.id + 1000, edition, UID)
    assert stranger.pulse(9) == Told("UNKNOWN_TYPE")


def test_a_pulse_with_fields_of_the_future_is_read(world: World) -> None:
    visitor = world.visit()
    visitor.say(framed(numbers(0, 0, 0, 60) + b"\x7a\x03abc"))
    world.turn()
    assert visitor.told() == Told("OK", 1)


# -------------------------------------------------------------------- R90: leases


@pytest.mark.parametrize(("next_pulse", "lease"), [(0, 10), (1, 1), (600, 600), (86_400, 86_400), (2**64 - 1, 86_400)])
@pytest.mark.parametrize("kind", ["REGISTER", "OK", "FETCH_ME"])
def test_r90_the_lease_is_what_was_promised_within_bounds(
    world: World, kind: str, next_pulse: int, lease: float
) -> None:
    if kind == "REGISTER":
        fellow = world.register(next_pulse=next_pulse, listens=False)
    else:
        fellow = world.worker(next_pulse=5)
        fellow.pulse(kind, next_pulse=next_pulse)
        if kind == "FETCH_ME":
            fellow.call("FETCH").answer("NO_FETCH")
    assert world.session._lease_end(fellow.station) == world.now + lease + 2
    world.now += lease + 1.99 - 0.4  # no need for all the turns between
    world.line._expected = world.now
    world.wait(0.39)
    assert fellow.is_known
    fellow.calls()
    world.wait(0.02)
    if kind == "REGISTER":
        assert not fellow.is_known
    else:
        assert [call.word for call in fellow.calls()] == ["GET_STATUS"]


@editions
def test_r90_one_get_status_before_it_is_dead_and_a_good_answer_renews_its_lease(world: World, edition: str) -> None:
    fellow, caller, _ = world.busy(edition, next_pulse=10, job_timeout=1000)
    for _ in range(3):
        world.wait(12.1)
        fellow.call("GET_STATUS").answer("OK", 1)
        assert fellow.state == "busy"
    assert caller.told == []


def test_r90_without_an_answer_it_is_gone_after_a_second_and_the_answer_is_still_read(world: World) -> None:
    fellow, _, _ = world.busy(next_pulse=10, job_timeout=1000)
    other = world.worker(next_pulse=1000)
    world.wait(12.01)
    status = fellow.call("GET_STATUS")
    world.wait(0.9)
    assert fellow.state == "busy"
    world.wait(0.2)
    assert fellow.state == "gone"
    assert status.is_open
    retry(world)
    other.call("SET_TASK")
    world.wait(500)
    status.answer("OK", 1)
    assert not status.is_open
    assert fellow.pulse("OK") == Told("UNKNOWN_ID")
    assert world.counters.false_expiries == 1


def test_r90_an_abandoned_get_status_is_closed_in_the_end(world: World) -> None:
    fellow = world.worker(next_pulse=10)
    world.wait(14)
    status = fellow.call("GET_STATUS")
    assert not fellow.is_known
    world.may_close_early = True
    world.wait(3_500)
    assert status.is_open
    world.wait(200)
    assert not status.is_open


@pytest.mark.parametrize("way", ["refused", "no file", "cut", "FAILED", 77])
def test_r90_a_lease_that_is_over_and_a_get_status_that_goes_wrong(world: World, way: str | int) -> None:
    fellow = world.worker(next_pulse=10)
    if way == "refused":
        world.refusing.add(fellow.id)
    elif way == "no file":
        world.sockets.clear()
    world.wait(12.01)
    for call in fellow.calls():
        if way == "cut":
            call.cut()
        else:
            call.answer(way)
    assert fellow.state == "gone"
    assert world.counters.false_expiries == 0


@pytest.mark.parametrize("way", ["silent", "cut"])
def test_r90_a_pulse_that_comes_while_it_is_asked_saves_it(world: World, way: str) -> None:
    """It has been heard from: that its GET_STATUS stays unanswered is no proof of death any more."""
    fellow, caller, call = world.busy(next_pulse=10, job_timeout=1000)
    world.wait(12.1)
    status = fellow.call("GET_STATUS")
    fellow.ok(call.task, next_pulse=10)
    if way == "cut":
        status.cut()
    world.wait(5)
    assert fellow.state == "busy"
    assert caller.told == []


def test_r90_nobody_is_asked_while_an_exchange_is_open_and_its_lease_judges_it(world: World) -> None:
    """A worker that computes inside the exchange cannot answer anything else."""
    fellow = world.worker(next_pulse=10)
    world.submit(job_timeout=1000)
    call = fellow.call("SET_TASK")
    for _ in range(5):
        world.wait(11)
        fellow.ok(0, next_pulse=10)
    assert fellow.calls() == []
    assert fellow.state == "busy"
    world.wait(12.1)
    assert fellow.calls() == []
    assert fellow.state == "gone"
    assert call.is_open
    call.answer("OK", 1)


def test_two_leases_do_not_know_of_each_other(world: World) -> None:
    short, long = world.worker(next_pulse=10), world.worker(next_pulse=100)
    world.wait(12.1)
    short.call("GET_STATUS")
    world.wait(1)
    assert (short.state, long.state) == ("gone", "idle")


# -------------------------------------------------------------------- SHUTDOWN


@editions
def test_shutdown_of_an_idle_worker(world: World, edition: str) -> None:
    fellow = world.worker(edition)
    assert fellow.pulse("SHUTDOWN", task_id=99, next_pulse=2**64 - 1) == Told("OK")
    assert fellow.state == "gone"
    assert fellow.calls() == []


@editions
def test_shutdown_with_a_job_in_hand_gives_it_to_another_at_once(world: World, edition: str) -> None:
    fellow, caller, call = world.busy(edition)
    other = world.worker()
    assert fellow.pulse("SHUTDOWN", call.task) == Told("OK")
    world.wait(0.2)
    again = other.call("SET_TASK")
    assert again.said[2] == b"job"
    assert again.task != call.task
    again.answer("OK", again.task)
    other.finish(again)
    assert caller.outcome is Outcome.DONE
    assert caller.job is not None
    assert caller.job.spent == 1


def test_shutdown_in_the_middle_of_set_task_and_its_answer_is_read(world: World) -> None:
    fellow = world.worker()
    caller = world.submit(attempts=1)
    call = fellow.call("SET_TASK")
    fellow.pulse("SHUTDOWN")
    assert caller.outcome is Outcome.LOST
    assert call.is_open
    call.answer("OK", call.task)
    assert not call.is_open


def test_shutdown_is_final_and_register_needs_no_other_pulse(world: World) -> None:
    fellow = world.worker()
    late = world.visit()
    fellow.pulse("SHUTDOWN")
    late.say(pulse("OK", worker_id=fellow.id))
    world.turn()
    assert late.told() == Told("UNKNOWN_ID")
    assert world.worker().state == "idle"


# -------------------------------------------------------------------- R92 to R96: tasks and results


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
    assert caller.told == [(Outcome.FAILED, b"", "its worker said TASK_FAILED")]
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
    assert any("broken" in why or "error 99" in why for event, why in world.remarks if event == "worker left")
    retry(world)
    task = other.take()
    assert world.counters.handed_out == 2
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
    world.turn()
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
    world.turn()
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
    assert world.said("task lost") == 1


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


# -------------------------------------------------------------------- R91: which task a pulse names


@pytest.mark.parametrize("names", ["0", "own", "previous"])
@pytest.mark.parametrize("is_busy", [False, True])
def test_r91_zero_own_and_previous_are_fine(world: World, names: str, is_busy: bool) -> None:
    fellow, _, first = world.busy()
    fellow.finish(first)
    own = 0
    if is_busy:
        world.submit()
        own = fellow.take().task
    world.wait(1)
    fellow.ok({"0": 0, "own": own, "previous": first.task}[names])
    assert fellow.calls() == []
    assert fellow.is_known


@editions
def test_r91_a_foreign_task_is_asked_about_and_then_the_worker_must_restart(world: World, edition: str) -> None:
    fellow, caller, _ = world.busy(edition)
    other = second_worker(world)
    world.wait(1)
    fellow.ok(4711)
    fellow.ok(4711)
    status = fellow.call("GET_STATUS")
    assert fellow.state == "busy"
    status.answer("OK", 4711)
    restart = fellow.call("RESTART")
    assert fellow.state == "gone"
    restart.answer("FAILED", 0, b"I will not")
    assert not restart.is_open
    retry(world)
    other.finish(other.take())
    assert caller.outcome is Outcome.DONE
    assert fellow.pulse("OK") == Told("UNKNOWN_ID")


@pytest.mark.parametrize("names", [0, 1])
def test_r91_a_foreign_task_in_a_pulse_that_the_status_does_not_confirm_is_forgiven(world: World, names: int) -> None:
    fellow, _, _ = world.busy()
    world.wait(1)
    fellow.ok(4711)
    fellow.call("GET_STATUS").answer("OK", names)
    assert fellow.state == "busy"
    assert fellow.calls() == []


def test_r91_a_pulse_that_crossed_an_exchange_is_not_judged(world: World) -> None:
    fellow = world.worker()
    world.submit()
    call = fellow.call("SET_TASK")
    world.wait(1)
    crossing = world.visit()
    world.wait(1)
    call.answer("OK", call.task)
    crossing.say(pulse("OK", worker_id=fellow.id, task_id=4711))
    world.turn()
    assert crossing.told() == Told("OK")
    assert fellow.calls() == []
    assert fellow.state == "busy"


def test_r91_a_pulse_while_an_exchange_is_open_is_not_judged(world: World) -> None:
    fellow = world.worker()
    world.submit()
    call = fellow.call("SET_TASK")
    world.wait(1)
    for task in (4711, 0, 0, 0):
        fellow.ok(task)
    assert fellow.calls() == []
    call.answer("OK", call.task)
    assert fellow.calls() == []


def test_r91_idle_pulses_that_crossed_the_exchange_do_not_count(world: World) -> None:
    fellow = world.worker()
    world.submit()
    call = fellow.call("SET_TASK")
    world.wait(1)
    crossing = [world.visit() for _ in range(4)]
    call.answer("OK", call.task)
    for visitor in crossing:
        visitor.say(pulse("OK", worker_id=fellow.id))
    world.turn()
    assert fellow.calls() == []


@editions
@pytest.mark.parametrize("names", [0, 4711])
def test_r91_always_is_the_letter_of_the_document(edition: str, names: int) -> None:
    world = World(restart_on_mismatch="always")
    fellow, caller, call = world.busy(edition, attempts=1)
    world.wait(1)
    fellow.ok(call.task)
    assert fellow.calls() == []
    fellow.ok(names)
    fellow.call("RESTART").answer()
    assert fellow.state == "gone"
    assert caller.outcome is Outcome.LOST


def test_r91_always_does_not_judge_a_pulse_that_crossed_an_exchange() -> None:
    world = World(restart_on_mismatch="always")
    fellow = world.worker()
    world.submit()
    crossing = world.visit()
    fellow.take()
    crossing.say(pulse("OK", worker_id=fellow.id))
    world.turn()
    assert fellow.state == "busy"
    assert fellow.calls() == []


def test_r91_always_restarts_an_idle_worker_that_names_its_last_task() -> None:
    world = World(restart_on_mismatch="always")
    fellow, _, call = world.busy()
    fellow.finish(call)
    world.wait(1)
    fellow.ok(call.task)
    fellow.call("RESTART")
    assert fellow.state == "gone"


def test_r91_a_task_that_was_refused_is_not_the_previous_one(world: World) -> None:
    """It still works at what was cancelled, says BUSY to all else, and names in its pulses what it has."""
    fellow, first, call = world.busy()
    world.withdraw(first)
    second = world.submit(b"second")
    fellow.call("SET_TASK").answer("BUSY", call.task)
    world.wait(0.05)
    fellow.ok(call.task)
    assert fellow.calls() == []
    world.wait(1)
    for each in fellow.calls():
        each.answer("BUSY", call.task)
    fellow.fetch_me(call.task)
    fellow.call("FETCH").answer("OK", call.task, b"late")
    assert fellow.is_known
    fellow.finish(fellow.take(b"second"))
    assert second.outcome is Outcome.DONE


def test_r91_a_task_that_was_cancelled_and_then_refused_is_not_the_previous_one(world: World) -> None:
    fellow, first, call = world.busy()
    world.withdraw(first)
    second = world.submit(b"second")
    refused = fellow.call("SET_TASK")
    world.withdraw(second)
    refused.answer("BUSY", call.task)
    world.wait(0.05)
    fellow.ok(call.task)
    assert fellow.calls() == []
    fellow.fetch_me(call.task)
    fellow.call("FETCH").answer("OK", call.task, b"late")
    assert fellow.state == "idle"


def test_r91_a_task_that_never_left_us_is_not_the_previous_one(world: World) -> None:
    fellow, _, call = world.busy()
    fellow.finish(call)
    fellow.fetch_me(call.task)
    fetch = fellow.call("FETCH")
    second = world.submit(b"second")
    world.withdraw(second)
    fetch.answer("NO_FETCH")
    world.wait(1)
    fellow.ok(call.task)
    assert fellow.calls() == []
    assert fellow.state == "idle"


# -------------------------------------------------------------------- R98: BUSY


@editions
def test_r98_busy_sends_the_job_to_another_worker_at_once_and_spends_nothing(world: World, edition: str) -> None:
    fellow, other = world.worker(edition), world.worker(edition)
    caller = world.submit(attempts=1)
    fellow.call("SET_TASK").answer("BUSY")
    assert fellow.state == "resting"
    other.finish(other.take())
    assert caller.outcome is Outcome.DONE
    assert caller.job is not None
    assert caller.job.spent == 0


def test_r98_a_worker_that_is_busy_ever_after_is_asked_ever_more_rarely(world: World) -> None:
    fellow = world.worker(next_pulse=10_000)
    world.submit(job_timeout=10_000)
    fellow.call("SET_TASK").answer("BUSY")
    last = world.now
    waits = []
    while len(waits) < 12:
        world.now = max(world.now, world.turn())
        world.turn()
        for call in fellow.calls():
            waits.append(round(world.now - last, 3))
            call.answer("BUSY")
            last = world.now
    expected = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0]
    assert waits == pytest.approx(expected, abs=0.11)  # every tenth refusal the job rests 0.1 s itself


@pytest.mark.parametrize("how", ["pulse", "status", "result", "late failure", "REGISTER"])
def test_r98_what_ends_the_wait_of_a_busy_worker(world: World, how: str) -> None:
    fellow, first, held = world.busy(next_pulse=100)
    world.withdraw(first)
    caller = world.submit(b"second", job_timeout=1000)
    for _ in range(9):
        fellow.call("SET_TASK").answer("BUSY", held.task)
        world.wait(fellow.station.rest - 0.001)
        assert fellow.calls() == []
        world.wait(0.002)
    fellow.call("SET_TASK").answer("BUSY", held.task)
    world.wait(1)
    assert fellow.state == "resting"
    if how == "pulse":
        fellow.ok(0)
    elif how == "status":
        fellow.ok(4711)
        fellow.call("GET_STATUS").answer("OK", 0)
    elif how == "result":
        fellow.fetch_me(held.task)
        fellow.call("FETCH").answer("OK", held.task, b"late")
    elif how == "late failure":
        fellow.fetch_me(held.task)
        fellow.call("FETCH").answer("TASK_FAILED", held.task, b"late")
    else:
        fellow = world.worker()
    fellow.finish(fellow.take(b"second"))
    assert caller.outcome is Outcome.DONE
    if how != "REGISTER":
        assert fellow.station.rest == 0


def test_r98_a_pulse_with_its_old_task_does_not_end_the_wait(world: World) -> None:
    fellow, first, held = world.busy()
    world.withdraw(first)
    world.submit()
    fellow.call("SET_TASK").answer("BUSY", held.task)
    world.wait(0.05)
    fellow.ok(held.task)
    assert fellow.calls() == []
    assert fellow.state == "resting"


def test_r98_the_result_that_makes_it_busy_is_fetched_even_if_its_fetch_me_came_during_set_task(world: World) -> None:
    """It says FETCH_ME once. Not to ask would leave it busy for ever."""
    fellow, first, held = world.busy()
    world.withdraw(first)
    caller = world.submit(b"second")
    task = fellow.call("SET_TASK")
    fellow.fetch_me(held.task)
    assert fellow.calls() == []
    task.answer("BUSY", held.task)
    fellow.call("FETCH").answer("OK", held.task, b"late")
    assert caller.told == []
    fellow.finish(fellow.take(b"second"), b"second")
    assert caller.told == [(Outcome.DONE, b"second", "")]


def test_r98_busy_to_a_job_that_was_cancelled_meanwhile(world: World) -> None:
    fellow = world.worker()
    caller = world.submit()
    call = fellow.call("SET_TASK")
    world.withdraw(caller)
    call.answer("BUSY")
    assert fellow.state == "resting"
    world.wait(0.11)
    assert fellow.state == "idle"


def test_r98_the_broken_lease_of_a_resting_worker_is_judged(world: World) -> None:
    fellow = world.worker(next_pulse=10)
    for _ in range(3):
        caller = world.submit()
        for call in fellow.calls():
            call.answer("BUSY")
        world.withdraw(caller)
    world.sockets.clear()
    world.wait(15)
    assert fellow.state == "gone"


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
    assert world.said("worker not dialled") == 1
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
    world.turn()
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
    world.turn()
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
    assert fellow.state == "unproven"
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
    world.turn()
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
    world.turn()
    assert fellow.state == "idle"
    assert call.is_open
    world.wait(9.9)
    assert call.is_open
    world.wait(0.2)
    assert not call.is_open
    assert world.session._visits.armed == 0


def test_bytes_that_come_behind_an_answer_when_it_has_been_heard_change_nothing(world: World) -> None:
    fellow, caller, call = world.busy()
    fellow.fetch_me(call.task)
    fetch = fellow.call("FETCH")
    fetch.feed(fetch.bytes_of("OK", call.task, b"result"))
    fetch.is_answered = True
    world.turn()
    fetch.feed(b"more")
    world.turn()
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
    world.turn()
    assert fellow.state == "gone"
    assert caller.outcome is Outcome.LOST
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
    world.turn()
    assert fellow.state == "gone"
    assert caller.outcome is Outcome.LOST


# -------------------------------------------------------------------- cancel, time-out, drain, kill


@editions
def test_d11_a_cancelled_job_leaves_its_worker_as_usual_and_busy_says_that_it_still_works(
    world: World, edition: str
) -> None:
    fellow, first, held = world.busy(edition)
    world.withdraw(first)
    assert first.outcome is Outcome.CANCELLED
    assert fellow.state == "idle"
    second = world.submit(b"second")
    fellow.call("SET_TASK").answer("BUSY", held.task)
    fellow.fetch_me(held.task)
    fellow.call("FETCH").answer("OK", held.task, b"late")
    fellow.finish(fellow.take(b"second"))
    assert second.outcome is Outcome.DONE
    assert len(first.told) == 1


@editions
def test_d11_a_job_that_timed_out_is_offered_elsewhere_and_its_late_result_dropped(world: World, edition: str) -> None:
    fellow, caller, held = world.busy(edition, next_pulse=1000, job_timeout=20)
    other = world.worker(next_pulse=1000)
    world.wait(20.1)
    retry(world)
    task = other.take()
    fellow.fetch_me(held.task)
    fellow.call("FETCH").answer("OK", held.task, b"late")
    assert caller.told == []
    assert world.counters.late_results == 1
    other.finish(task, b"in time")
    assert caller.told == [(Outcome.DONE, b"in time", "")]


def test_d11_a_job_cancelled_inside_its_exchange_frees_the_worker_when_that_has_ended(world: World) -> None:
    fellow = world.worker()
    first = world.submit()
    call = fellow.call("SET_TASK")
    world.withdraw(first)
    second = world.submit(b"second")
    assert fellow.state == "unproven"
    fellow.fetch_me(call.task)
    call.answer("OK", call.task)
    fellow.call("FETCH").answer("OK", call.task, b"late")
    fellow.finish(fellow.take(b"second"))
    assert second.outcome is Outcome.DONE
    assert world.counters.late_results == 1


@pytest.mark.parametrize("answer", ["OK", "TASK_FAILED"])
def test_d11_a_job_cancelled_inside_its_exchange_and_its_answer(world: World, answer: str) -> None:
    fellow = world.worker()
    first = world.submit()
    call = fellow.call("SET_TASK")
    world.withdraw(first)
    call.answer(answer, call.task)
    assert fellow.state == "idle"
    assert [told[0] for told in first.told] == [Outcome.CANCELLED]


def test_d11_a_job_cancelled_while_its_result_is_fetched(world: World) -> None:
    fellow, caller, call = world.busy()
    fellow.fetch_me(call.task)
    fetch = fellow.call("FETCH")
    world.withdraw(caller)
    assert fellow.state == "unproven"
    fetch.answer("OK", call.task, b"late")
    assert fellow.state == "idle"
    assert caller.outcome is Outcome.CANCELLED
    assert world.counters.late_results == 1


def test_a_hung_exchange_of_a_cancelled_job_does_not_keep_its_worker_for_ever() -> None:
    world = World(unproven_limit=100)
    fellow = world.worker(next_pulse=1000)
    caller = world.submit(job_timeout=500)
    call = fellow.call("SET_TASK")
    world.withdraw(caller)
    world.wait(101)
    assert fellow.state == "gone"
    assert fellow.calls() == []  # it expired: no RESTART
    assert call.is_open
    call.answer("OK", call.task)


@editions
def test_a_drained_worker_finishes_its_job_and_is_told_to_restart(world: World, edition: str) -> None:
    fellow, caller, call = world.busy(edition)
    world.broker.drain(fellow.station.worker, world.now)
    world.turn()
    assert fellow.state == "draining"
    assert fellow.calls() == []
    fellow.fetch_me(call.task)
    fellow.call("FETCH").answer("OK", call.task, b"result")
    assert caller.outcome is Outcome.DONE
    restart = fellow.call("RESTART")
    assert fellow.state == "gone"
    restart.cut()
    assert fellow.pulse("OK") == Told("UNKNOWN_ID")


@pytest.mark.parametrize("state", ["booting", "idle"])
def test_a_worker_without_a_job_is_drained_at_once(world: World, state: str) -> None:
    fellow = world.register() if state == "booting" else world.worker()
    world.broker.drain(fellow.station.worker, world.now)
    world.turn()
    assert fellow.state == "gone"
    fellow.call("RESTART").answer()
    world.wait(20)
    assert fellow.calls() == []


def test_a_draining_worker_that_has_lost_its_task_does_not_come_back(world: World) -> None:
    fellow, caller, call = world.busy(attempts=1)
    world.broker.drain(fellow.station.worker, world.now)
    world.turn()
    fellow.fetch_me(call.task)
    fellow.call("FETCH").cut()
    fellow.call("FETCH").answer("NO_FETCH")
    assert caller.outcome is Outcome.LOST
    assert fellow.state == "gone"
    fellow.call("RESTART").answer()


@pytest.mark.parametrize("during", ["SET_TASK", "FETCH", "work"])
@editions
def test_a_killed_worker_is_told_to_restart_at_once(world: World, edition: str, during: str) -> None:
    fellow = world.worker(edition)
    caller = world.submit(attempts=1)
    call = fellow.call("SET_TASK")
    if during != "SET_TASK":
        call.answer("OK", call.task)
    if during == "FETCH":
        fellow.fetch_me(call.task)
        call = fellow.call("FETCH")
    world.broker.drain(fellow.station.worker, world.now, at_once=True)
    world.turn()
    assert caller.outcome is Outcome.LOST
    assert fellow.state == "gone"
    fellow.call("RESTART").answer()
    if during != "work":
        assert call.is_open
        call.answer("OK", call.task, b"late")


def test_a_killed_worker_that_is_not_there_any_more(world: World) -> None:
    fellow = world.worker()
    world.sockets.clear()
    world.broker.drain(fellow.station.worker, world.now, at_once=True)
    world.turn()
    assert fellow.state == "gone"


def test_a_restart_that_is_never_answered_is_waited_for_and_then_closed(world: World) -> None:
    fellow = world.worker()
    world.broker.drain(fellow.station.worker, world.now, at_once=True)
    world.turn()
    restart = fellow.call("RESTART")
    world.wait(600)
    assert restart.is_open
    world.may_close_early = True
    world.wait(4000)
    assert not restart.is_open
    assert world.session._exchanges.armed == 0


# -------------------------------------------------------------------- several workers; our own pauses


@editions
def test_two_workers_at_once(world: World, edition: str) -> None:
    one, two = world.worker(edition), world.worker("seed")
    callers = [world.submit(b"a"), world.submit(b"b"), world.submit(b"c")]
    first, second = one.take(b"a"), two.take(b"b")
    two.finish(second, b"B")
    third = two.take(b"c")
    one.finish(first, b"A")
    two.finish(third, b"C")
    assert [caller.told[0][1] for caller in callers] == [b"A", b"B", b"C"]


def test_workers_take_turns(world: World) -> None:
    fellows = [world.worker() for _ in range(3)]
    for _ in range(2):
        for fellow in fellows:
            world.submit()
            fellow.finish(fellow.take())


def test_d13_our_own_pause_kills_nobody(world: World) -> None:
    fellow, caller, call = world.busy(next_pulse=10, job_timeout=1000)
    idle = world.worker(next_pulse=10)
    booting = world.register(next_pulse=10, listens=False)
    world.late(500)
    assert (idle.state, fellow.state, booting.state) == ("idle", "busy", "booting")
    assert idle.calls() == fellow.calls() == []
    fellow.finish(call)
    assert caller.outcome is Outcome.DONE
    world.wait(13)
    assert [each.word for each in idle.calls()] == ["GET_STATUS"]


@pytest.mark.parametrize("is_connected", [True, False])
def test_d13_a_get_status_that_we_slept_over_is_not_late(world: World, is_connected: bool) -> None:
    fellow, caller, call = world.busy(next_pulse=10, job_timeout=1000)
    if not is_connected:
        world.hanging.add(fellow.id)
    world.wait(12.01)
    world.late(30)
    assert fellow.state == "busy"
    world.hanging.clear()
    world.turn()
    fellow.call("GET_STATUS").answer("OK", call.task)
    fellow.finish(call)
    assert caller.outcome is Outcome.DONE


def test_d13_a_fetch_that_we_slept_over_is_not_late(world: World) -> None:
    fellow, caller, call = world.busy(job_timeout=1000, next_pulse=1000)
    fellow.fetch_me(call.task)
    fetch = fellow.call("FETCH")
    world.late(60)
    assert fellow.calls() == []
    fetch.answer("OK", call.task, b"result")
    assert caller.outcome is Outcome.DONE


def test_what_nobody_knows_of_any_more_leaves_nothing_behind(world: World) -> None:
    for _ in range(20):
        fellow = world.worker()
        caller = world.submit()
        fellow.finish(fellow.take())
        fellow.pulse("SHUTDOWN")
        assert caller.outcome is Outcome.DONE
    session = world.session
    assert not session._stations
    assert session._alarms.armed == session._exchanges.armed == session._visits.armed == 0
    assert not world.line.peers
    assert len(world.remarks) == 20 * 3


def test_nobody_calls_in_this_dialect_and_effects_for_callers_mean_nothing(world: World) -> None:
    world.session.execute(object(), world.now)  # type: ignore[arg-type]
