"""Registration of Powerhose workers by PING and REMOVE: R58, R59."""

from __future__ import annotations

import pytest

from dragoman.dialects.powerhose.broker_side import BACKEND
from dragoman.dialects.powerhose.options import ListenerOptions

from .world import (
    ERROR,
    FIRST,
    FORBIDDEN,
    MAX_PAYLOAD,
    PING,
    PONG,
    REMOVE,
    REMOVED,
    SECOND,
    World,
    fields,
)

# -------------------------------------------------------------------- defaults


def test_defaults_are_those_of_the_page() -> None:
    options = ListenerOptions()
    assert (options.service, options.worker_expire, options.wake_timeout) == ("default", 15.0, 1.0)
    assert (options.job_timeout, options.queue_timeout, options.attempts) == (60.0, 10.0, None)
    assert (options.base, options.dial_allow) == ("", "")


# -------------------------------------------------------------------- registration


def test_a_ping_from_an_unknown_endpoint_registers_it_and_is_answered_pong() -> None:
    world = World()
    bench = world.bench()
    assert bench.state == "unknown"
    assert bench.ping() == [PONG]
    assert world.dialled == [(world.now, FIRST)]
    assert bench.state == "idle"
    assert world.workers == 1
    assert bench.told() == [], "a worker that is idle is told nothing"


def test_a_worker_is_named_by_its_endpoint_and_offers_the_listeners_service() -> None:
    world = World(service="resize")
    bench = world.worker()
    (worker,) = world.broker.worker_registry.workers.values()
    assert worker.name == bench.endpoint
    assert [service.name for service in worker.services] == ["resize"]
    (line,) = world.remarked("worker joined")
    assert (line["worker"], line["services"]) == (FIRST, ["resize"])


def test_r59_a_ping_of_a_known_worker_is_answered_and_adds_no_second_entry() -> None:
    world = World()
    bench = world.worker()
    for _ in range(3):
        assert bench.ping() == [PONG]
    assert world.workers == 1
    assert len(world.dialled) == 1


def test_r59_a_busy_worker_gets_its_pong_and_is_given_nothing_by_it() -> None:
    """D1: alive is not idle."""
    world = World()
    bench, _ = world.busy()
    world.call(b"another")
    assert bench.ping() == [PONG]
    assert bench.told() == []
    assert bench.state == "working"


def test_r59_a_worker_that_was_only_asked_gets_its_pong() -> None:
    world = World()
    bench, _ = world.asked()
    assert bench.ping() == [PONG]
    assert bench.told() == []
    assert bench.state == "waking"


def test_r59_a_worker_that_is_being_dialled_gets_its_pong_and_is_dialled_once() -> None:
    world = World()
    bench = world.bench()
    world.places[FIRST] = "hangs"
    for _ in range(3):
        assert bench.ping() == [PONG]
    assert bench.state == "dialling"
    assert len(world.dialled) == 1


def test_r59_a_worker_that_rests_gets_its_pong_and_is_left_alone() -> None:
    world = World()
    bench, _ = world.asked()
    world.wait(1)
    assert bench.state == "resting"
    assert bench.ping() == [PONG]
    assert bench.state == "resting"
    assert len(world.dialled) == 1


def test_a_bare_ping_means_the_endpoint_that_the_connection_named_last() -> None:
    world = World()
    bench = world.worker()
    bench.die()
    world.places[FIRST] = "open"
    assert bench.registrant.ask(PING) == [PONG]
    assert bench.state == "idle"
    assert bench.registrant.ask(fields(PING, SECOND)) == [PONG]
    assert bench.registrant.ask(REMOVE) == [REMOVED]
    assert (world.state(FIRST), world.state(SECOND)) == ("idle", "unknown")


@pytest.mark.parametrize("word", [PING, REMOVE])
def test_a_bare_word_on_a_connection_that_named_nothing_is_an_error(word: bytes) -> None:
    world = World()
    world.worker()
    assert world.connect(BACKEND).ask(word) == [ERROR]
    assert world.bad == {"no endpoint": 1}
    assert world.state(FIRST) == "idle"


def test_a_refused_endpoint_is_not_what_a_bare_ping_means() -> None:
    world = World()
    bench = world.worker()
    assert bench.registrant.ask(fields(PING, FORBIDDEN)) == [ERROR]
    assert bench.registrant.ask(PING) == [PONG]
    assert list(world.session._remotes) == [FIRST]


def test_remove_of_an_idle_worker_takes_it_off_the_list_and_hangs_up() -> None:
    world = World()
    bench = world.worker()
    assert bench.remove() == [REMOVED]
    assert bench.state == "unknown"
    assert bench.end.is_over
    assert world.workers == 0
    caller = world.call()
    world.wait(10)
    assert caller.ending() == "timed out"


def test_remove_of_an_endpoint_that_nobody_knows_is_answered_alike() -> None:
    world = World()
    bench = world.bench()
    for _ in range(2):
        assert bench.remove() == [REMOVED]
    assert world.session._remotes == {}
    assert world.bad == {}


def test_r59_remove_said_twice_is_answered_twice() -> None:
    world = World()
    bench = world.worker()
    assert bench.remove() == [REMOVED]
    assert bench.remove() == [REMOVED]


def test_remove_while_it_is_being_dialled_ends_the_dial() -> None:
    world = World()
    bench = world.bench()
    world.places[FIRST] = "hangs"
    bench.ping()
    assert bench.remove() == [REMOVED]
    assert bench.state == "unknown"
    world.places[FIRST] = "open"
    world.wait(2)
    assert world.workers == 0
    assert len(world.dialled) == 1


def test_remove_between_two_dials_ends_them() -> None:
    world = World()
    bench = world.bench()
    world.places[FIRST] = "refused"
    bench.ping()
    assert bench.remove() == [REMOVED]
    world.wait(2)
    assert len(world.dialled) == 1
    assert world.session._remotes == {}


def test_r58_remove_while_busy_lets_the_job_end_and_then_hangs_up() -> None:
    world = World()
    bench, caller = world.busy()
    waiting = world.call(b"another")
    assert bench.remove() == [REMOVED]
    assert bench.state == "working, draining"
    assert not bench.end.is_over
    bench.finish(b"good")
    assert caller.told() == [b"good"]
    assert bench.end.is_over
    assert world.workers == 0
    assert bench.told() == [], "it is given nothing new"
    assert waiting.told() == []


def test_a_worker_that_an_operator_drained_stays_and_gets_nothing() -> None:
    """Hung up on, it was back with its next PING and got the next job."""
    world = World()
    bench, caller = world.busy()
    drained = bench.post.worker
    assert drained is not None
    assert drained.profile.comes_back
    world.broker.availability.drain(drained, world.now, stays=True)
    world.run_once()
    bench.finish(b"good")
    assert caller.told() == [b"good"]
    world.wait_pinging(60.0, bench)
    waiting = world.call(b"another")
    assert bench.told() == []
    assert bench.post.worker is drained
    assert str(drained.state) == "draining"
    bench.remove()
    assert world.workers == 0
    assert world.worker(SECOND).work(b"done") == b"another"
    assert waiting.told() == [b"done"]


def test_a_worker_that_leaves_itself_is_not_held_by_a_drain() -> None:
    world = World()
    bench, _ = world.busy()
    bench.remove()
    drained = bench.post.worker
    assert drained is not None
    world.broker.availability.drain(drained, world.now, stays=True)
    bench.finish()
    assert world.workers == 0


def test_r58_a_ping_after_remove_while_busy_changes_nothing_until_the_job_has_ended() -> None:
    world = World()
    bench, caller = world.busy()
    bench.remove()
    assert bench.ping() == [PONG]
    assert bench.state == "working, draining"
    bench.finish()
    assert caller.told() == [b"result"]
    assert bench.state == "away"
    assert bench.ping() == [PONG]
    assert bench.state == "idle"


def test_r58_remove_while_it_is_only_asked_gives_the_job_to_another_at_once() -> None:
    """It has not seen the job, and something new is not given to who leaves."""
    world = World()
    first, caller = world.asked()
    second = world.worker(SECOND)
    assert first.remove() == [REMOVED]
    assert first.end.is_over
    assert second.work(b"done") == b"job"
    assert caller.told() == [b"done"]


def test_r58_remove_while_a_cancelled_job_is_still_in_its_hands() -> None:
    world = World()
    bench, caller = world.busy()
    world.withdraw()
    assert caller.ending() == "cancelled"
    assert bench.remove() == [REMOVED]
    assert bench.state == "working, draining"
    bench.finish(b"late")
    assert world.counters.late_results == 1
    assert bench.end.is_over
    assert world.workers == 0


def test_a_worker_that_removed_itself_and_dies_with_its_job_is_lost_with_it() -> None:
    world = World(attempts=1)
    bench, caller = world.busy()
    bench.remove()
    bench.die()
    assert caller.ending() == "lost"


@pytest.mark.parametrize(
    "word",
    [b"", b"HELLO", b"ping", b"PONG", b"GIVE", b"WAKE", b"JOBRES:::1:::x", b"PINGPING", b"\xff\xfe", b"PING:::\xff"],
)
def test_anything_else_on_the_registration_socket_is_answered_error(word: bytes) -> None:
    world = World()
    bench = world.worker()
    assert bench.registrant.ask(word) == [ERROR]
    assert sum(world.bad.values()) == 1
    assert bench.state == "idle"
    assert bench.ping() == [PONG]


@pytest.mark.parametrize("frames", [(b"PING",), (b"x", b"PING"), (b"", b"PING", b"x"), (b"", b"", b"PING")])
def test_a_registration_of_another_shape_is_answered_error(frames: tuple[bytes, ...]) -> None:
    world = World()
    assert world.connect(BACKEND, kind="DEALER").say(*frames) == [[b"", ERROR]]
    assert sum(world.bad.values()) == 1


def test_a_registration_that_is_too_large_is_answered_error() -> None:
    world = World()
    end = world.connect(BACKEND)
    assert end.ask(bytes(MAX_PAYLOAD + 1)) == [ERROR]
    assert end.ask(b"PING:::" + b"x" * 4090) == [ERROR]
    assert world.bad == {"too large": 1, "too long": 1}


def test_d6_twenty_bad_messages_within_ten_seconds_end_that_connection_and_no_other() -> None:
    world = World()
    bench = world.worker()
    rude = world.connect(BACKEND)
    for _ in range(20):
        assert rude.ask(b"HELLO") == [ERROR]
    assert rude.is_over
    assert bench.ping() == [PONG]
    assert bench.state == "idle"


def test_the_end_of_the_connection_a_worker_registers_by_is_not_its_end() -> None:
    """REQ sockets reconnect; its work connection tells when it dies."""
    world = World()
    bench = world.worker()
    bench.registrant.cut()
    assert bench.state == "idle"
    caller = world.call()
    assert bench.work() == b"job"
    assert caller.told() == [b"result"]
