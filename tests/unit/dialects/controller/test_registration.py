"""Registration at the controller's socket, and assigned ids: R81 to R85."""

from __future__ import annotations

import pytest

from dragoman.core.states import Outcome
from dragoman.dialects.controller import remote_workers

from .world import ROOT, STRANGER, UID, Told, World, editions, framed, pulse

# -------------------------------------------------------------------- R81 to R84: who comes to the controller's socket


@editions
def test_register_is_answered_with_an_id_and_the_connection_is_closed(world: World, edition: str) -> None:
    visitor = world.visit()
    visitor.say(pulse("REGISTER", edition))
    world.run_once()
    told = visitor.told(edition)
    assert told == Told("OK", 1 if edition == "seed" else 2)
    assert visitor.is_over


def test_the_vectors_of_the_page_for_a_first_worker_of_each_edition() -> None:
    for sent, answered in (("203c", "1001"), ("0802203c", "08011002")):
        world = World()
        visitor = world.visit()
        visitor.say(framed(bytes.fromhex(sent)))
        world.run_once()
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
        world.broker.availability.drain(fellow.remote.worker, world.now)
        world.run_once()
        assert fellow.call("RESTART").stream.taken == framed(bytes.fromhex(restart))


def test_r83_eight_zero_bytes_are_a_register_and_get_the_default_lease(world: World) -> None:
    visitor = world.visit()
    visitor.say(bytes(8))
    world.run_once()
    assert visitor.told() == Told("OK", 1)
    world.wait(11.99)
    assert 1 in world.session._workers.by_id
    world.wait(0.02)
    assert 1 not in world.session._workers.by_id


def test_r81_a_pulse_may_come_byte_by_byte(world: World) -> None:
    visitor = world.visit()
    for byte in pulse("REGISTER", "shifted"):
        assert visitor.told() is None
        visitor.say(bytes([byte]))
    world.run_once()
    assert visitor.told("shifted") == Told("OK", 2)


@pytest.mark.parametrize("end", range(10))
def test_r81_a_pulse_that_ends_early_changes_nothing(world: World, end: int) -> None:
    visitor = world.visit()
    visitor.say(pulse("REGISTER")[:end])
    visitor.hang_up()
    assert not world.session._workers.by_id
    assert world.session._exchanges.idle_connections.armed == 0


@pytest.mark.parametrize("length", [65_537, 1 << 32, (1 << 64) - 1])
def test_r81_a_length_beyond_64_kib_is_answered_with_failed(world: World, length: int) -> None:
    visitor = world.visit()
    visitor.say(length.to_bytes(8, "little"))
    world.run_once()
    assert visitor.told() == Told("FAILED")
    assert visitor.is_over
    assert world.bad == {"head too long": 1}


def test_r81_bytes_behind_the_pulse_are_answered_with_failed_and_it_is_not_obeyed(world: World) -> None:
    visitor = world.visit()
    visitor.say(pulse("REGISTER") + b"x")
    world.run_once()
    assert visitor.told() == Told("FAILED")
    assert visitor.is_over
    assert not world.session._workers.by_id


def test_r81_a_pulse_and_another_behind_it_are_answered_with_failed_once(world: World) -> None:
    fellow = world.worker()
    visitor = world.visit()
    visitor.say(pulse("SHUTDOWN", worker_id=fellow.id) * 2)
    world.run_once()
    assert visitor.told() == Told("FAILED")
    assert fellow.state == "idle"


@pytest.mark.parametrize("edition", ["seed", "shifted"])
def test_an_unreadable_pulse_is_answered_with_failed_in_the_listeners_edition(edition: str) -> None:
    world = World(edition=edition)
    fellow = world.worker(edition)
    visitor = world.visit()
    visitor.say(framed(b"\xff\xff\xff"))
    world.run_once()
    assert visitor.told(edition) == Told("FAILED")
    assert visitor.is_over
    assert world.bad == {"unreadable": 1}
    assert fellow.state == "idle"
    visitor = world.visit()
    visitor.say(b"\xff" * 8)
    world.run_once()
    assert visitor.told(edition) == Told("FAILED")


def test_r82_connect_and_close_is_nothing(world: World) -> None:
    world.visit().hang_up()
    assert not world.session._workers.by_id
    assert world.remarks == []
    assert world.bad == {}


def test_connect_and_say_nothing_is_ended_after_a_while(world: World) -> None:
    visitor, slow = world.visit(), world.visit()
    slow.say(b"\x02")
    world.wait(9.9)
    assert not visitor.is_over
    world.wait(0.2)
    assert visitor.is_over
    assert slow.is_over
    assert not world.session._workers.by_id


def test_r84_who_is_not_allowed_is_closed_before_a_byte_is_parsed(world: World) -> None:
    visitor = world.visit(STRANGER)
    visitor.say(pulse("REGISTER"))
    world.run_once()
    assert visitor.is_over
    assert visitor.told() is None
    assert not world.session._workers.by_id
    assert world.said("connection rejected") == 1


def test_r84_root_may_come_in_and_others_that_the_url_names(world: World) -> None:
    assert world.worker(address=ROOT).state == "idle"
    other = World(uids=(STRANGER,))
    assert other.worker(address=STRANGER).state == "idle"
    visitor = other.visit(UID)
    visitor.say(pulse("REGISTER"))
    other.run_once()
    assert visitor.told() is None


def test_r84_beyond_50_registers_a_second_the_answers_wait_and_pulses_do_not(world: World) -> None:
    fellow = world.worker()
    world.wait(0.95)
    visitors = [world.visit() for _ in range(120)]
    for visitor in visitors:
        visitor.say(pulse("REGISTER"))
    world.run_once()

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
    assert len(world.session._workers.by_id) == 50
    world.wait(1)
    assert len(world.session._workers.by_id) == 70
    assert not world.session._waiting


def test_r84_too_many_workers_of_one_user_are_refused_and_others_are_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert remote_workers.WORKERS_A_UID == 10_000
    monkeypatch.setattr(remote_workers, "WORKERS_A_UID", 3)
    fellows = [world.worker() for _ in range(3)]
    visitor = world.visit()
    visitor.say(pulse("REGISTER", "shifted"))
    world.run_once()
    assert visitor.told("shifted") == Told("FAILED")
    assert visitor.is_over
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
    assert fellow.call("SET_TASK").task == 1


@editions
def test_numbers_of_tasks_are_above_those_that_may_be_used(edition: str) -> None:
    class LaterWorld(World):
        last_task = 1 << 32

    world = LaterWorld(first_id=(1 << 32) + 1)
    fellow = world.worker(edition)
    world.submit()
    assert fellow.call("SET_TASK").task == (1 << 32) + 1


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
    assert not world.session._workers.by_id
    anew = world.worker(edition)
    assert anew.id > 1000
    assert anew.id % 2 == fellow.id % 2


@editions
def test_a_worker_that_registers_anew_with_its_old_id_in_the_struct_is_a_new_one(world: World, edition: str) -> None:
    fellow = world.worker(edition)
    visitor = world.visit()
    visitor.say(pulse("REGISTER", edition, worker_id=fellow.id, task_id=77))
    world.run_once()
    told = visitor.told(edition)
    assert told == Told("OK", fellow.id + 2)
    assert fellow.state == "idle"


@editions
def test_after_a_restart_a_register_with_an_old_id_in_the_struct_is_a_register(edition: str) -> None:
    world = World(first_id=1000)
    visitor = world.visit()
    visitor.say(pulse("REGISTER", edition, worker_id=7 if edition == "seed" else 8, task_id=3))
    world.run_once()
    assert visitor.told(edition) == Told("OK", 1001 if edition == "seed" else 1002)


def test_the_url_may_fix_the_edition() -> None:
    world = World(edition="shifted")
    visitor = world.visit()
    visitor.say(pulse("REGISTER", "seed"))  # no type: not a number of this edition
    world.run_once()
    assert visitor.told("shifted") == Told("UNKNOWN_TYPE")
    assert world.worker("shifted").state == "idle"
