"""Commands in a wrong state: the reply is DISCONNECT, and the worker is removed (D8)."""

from __future__ import annotations

from dragoman.core.policy import Policy
from dragoman.core.states import Outcome

from .world import UNKNOWN, Speech, World, every


@every
def test_a_second_ready_is_answered_with_disconnect(speech: Speech) -> None:
    world = World()
    worker = world.worker(speech)
    assert worker.ready() == ["DISCONNECT"]
    assert world.state(worker) == "parted"
    assert world.bad == {"unexpected command": 1}


@every
def test_ready_from_a_busy_worker_is_answered_with_disconnect_and_its_job_is_lost(speech: Speech) -> None:
    world = World()
    worker, client = world.busy(speech)
    assert worker.ready() == ["DISCONNECT"]
    assert world.ended == {"lost": 1}
    assert client.told() == []
    assert world.counters.unreported_outcomes == {Outcome.LOST: 1}


def test_d8_with_more_attempts_another_worker_gets_the_job_of_one_that_was_out_of_turn() -> None:
    world = World(attempts=2)
    worker, client = world.busy()
    other = world.worker()
    assert worker.ready() == ["DISCONNECT"]
    world.wait(0.2)
    assert other.words() == ["job"]
    assert worker.reply(b"late") == []  # parted, and told so already
    other.reply(b"second try")
    assert client.done(b"second try")
    assert world.counters.late_results == 1


@every
def test_a_reply_to_nothing_is_answered_with_disconnect(speech: Speech) -> None:
    world = World()
    for side in (world.connect(speech), world.worker(speech)):
        assert side.reply(client=UNKNOWN) == ["DISCONNECT"]
        assert world.state(side) == "parted"
    assert world.counters.late_results == 0


def test_a_reply_to_nothing_from_a_busy_worker_costs_it_its_job() -> None:
    world = World()
    worker, client = world.busy()
    assert worker.reply(client=UNKNOWN) == ["DISCONNECT"]
    assert world.ended == {"lost": 1}
    assert client.told() == []


@every
def test_a_heartbeat_before_ready_is_answered_with_disconnect_once(speech: Speech) -> None:
    world = World()
    side = world.connect(speech)
    assert side.heartbeat() == ["DISCONNECT"]
    assert side.heartbeat() == []
    assert side.ready() == []
    assert world.state(side) == "idle"


def test_after_disconnect_ready_on_the_same_connection_makes_a_new_worker() -> None:
    world = World()
    worker = world.worker()
    worker.ready()
    client = world.client()
    assert worker.ready() == ["job"]
    worker.reply(b"done")
    assert client.done(b"done")


def test_a_worker_that_says_disconnect_is_gone() -> None:
    world = World()
    worker = world.worker()
    assert worker.disconnect() == []
    assert world.state(worker) == "parted"
    world.client()
    assert worker.words() == []
    world.wait(3)
    assert worker.words() == []


def test_a_busy_worker_that_says_disconnect_has_lost_its_job() -> None:
    world = World()
    worker, client = world.busy()
    assert worker.disconnect() == []
    assert world.ended == {"lost": 1}
    assert client.told() == []


def test_a_worker_for_which_there_is_no_room_hears_nothing_and_may_try_again() -> None:
    world = World(policy=Policy(max_services=1))
    world.worker(service=b"first")
    late = world.connect()
    assert late.ready(b"second") == []
    assert late.heartbeat() == []
    world.wait(3)
    assert late.words() == []
    assert world.remarked("worker rejected")
    assert late.ready(b"first") == []
    assert world.state(late) == "idle"
