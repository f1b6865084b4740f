"""Every row and decision of the dialect's page, and its rules R51 to R59: one test each."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from dragoman.core.model import Wishes
from dragoman.core.policy import Policy
from dragoman.dialects.frontend import FRONTEND
from dragoman.dialects.powerhose.options import ListenerOptions
from dragoman.dialects.powerhose.session import BACKEND, POSTS_KEPT, name_of
from dragoman.server.reach import Reach

from .world import (
    ELSEWHERE,
    ERROR,
    FIRST,
    FORBIDDEN,
    GIVE,
    HOME,
    JOB,
    JOBRES,
    MAX_PAYLOAD,
    PING,
    PONG,
    REMOVE,
    REMOVED,
    SECOND,
    THIRD,
    WAKE,
    Bench,
    Caller,
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
    assert world.dials == [(world.now, FIRST)]
    assert bench.state == "idle"
    assert world.workers == 1
    assert bench.told() == [], "a worker that is idle is told nothing"


def test_a_worker_is_named_by_its_endpoint_and_offers_the_listeners_service() -> None:
    world = World(service="resize")
    bench = world.worker()
    (worker,) = world.broker.roster.workers.values()
    assert worker.name == bench.endpoint
    assert [service.name for service in worker.services] == ["resize"]
    assert world.remarked("worker joined") == [{"worker": FIRST, "service": "resize"}]


def test_r59_a_ping_of_a_known_worker_is_answered_and_adds_no_second_entry() -> None:
    world = World()
    bench = world.worker()
    for _ in range(3):
        assert bench.ping() == [PONG]
    assert world.workers == 1
    assert len(world.dials) == 1


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
    assert len(world.dials) == 1


def test_r59_a_worker_that_rests_gets_its_pong_and_is_left_alone() -> None:
    world = World()
    bench, _ = world.asked()
    world.wait(1)
    assert bench.state == "resting"
    assert bench.ping() == [PONG]
    assert bench.state == "resting"
    assert len(world.dials) == 1


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
    assert list(world.session._posts) == [FIRST]


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
    assert world.session._posts == {}
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
    assert len(world.dials) == 1


def test_remove_between_two_dials_ends_them() -> None:
    world = World()
    bench = world.bench()
    world.places[FIRST] = "refused"
    bench.ping()
    assert bench.remove() == [REMOVED]
    world.wait(2)
    assert len(world.dials) == 1
    assert world.session._posts == {}


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
    assert drained.terms.comes_back
    world.broker.drain(drained, world.now, stays=True)
    world.turn()
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
    world.broker.drain(drained, world.now, stays=True)
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


# -------------------------------------------------------------------- R51: where we may be sent


def test_r51_an_endpoint_that_is_not_allowed_is_an_error_counted_logged_and_never_dialled() -> None:
    world = World()
    bench = world.bench(FORBIDDEN)
    assert bench.ping() == [ERROR]
    assert world.dials == []
    assert world.session._posts == {}
    assert world.bad == {"endpoint not allowed": 1}
    (line,) = world.remarked("bad message")
    assert FORBIDDEN in line["detail"]
    assert "it is forbidden" in line["detail"]


def test_r51_the_log_shows_a_hostile_endpoint_escaped_and_cut() -> None:
    world = World(reach=lambda endpoint, address: (None, "no"))
    bench = world.bench("tcp://\x1b[2J\n" + "x" * 3000)
    assert bench.ping() == [ERROR]
    (line,) = world.remarked("bad message")
    assert line["detail"].isprintable()
    assert len(line["detail"]) < 300


def test_r51_what_lies_at_an_endpoint_is_judged_anew_before_every_dial() -> None:
    verdicts = ["place", "place", None]
    world = World(reach=lambda endpoint, address: (verdicts.pop(0), "it has become somebody else's"))
    world.places["place"] = "refused"
    bench = world.bench()
    assert bench.ping() == [PONG]
    world.wait(1)
    assert len(world.dials) == 1
    assert bench.state == "away"
    assert world.remarked("worker not dialled") == [{"worker": FIRST, "reason": "it has become somebody else's"}]


def test_r51_the_reach_is_told_the_address_of_whoever_registers() -> None:
    asked = []

    def reach(endpoint: str, address: str) -> tuple[object, str]:
        asked.append((endpoint, address))
        return endpoint, ""

    World(reach=reach).bench(address=ELSEWHERE).ping()
    assert set(asked) == {(FIRST, ELSEWHERE)}


def test_a_relative_ipc_endpoint_is_looked_for_under_base(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "w.ipc"))
        world = World(reach=Reach([str(tmp_path)], []))
        bench = world.bench("ipc://w.ipc", f"uid {os.getuid()}")
        assert bench.ping() == [PONG]
        assert [place for _, place in world.dials] == [str(tmp_path / "w.ipc")]
        assert bench.state == "idle"
        assert world.bench("ipc://../w.ipc").ping() == [ERROR]


# -------------------------------------------------------------------- R52: the endpoint is the identity


def test_r52_two_workers_that_claim_one_endpoint_are_one_worker() -> None:
    world = World()
    bench, twin = world.worker(), world.bench()
    assert twin.ping() == [PONG]
    assert world.workers == 1
    assert len(world.dials) == 1
    assert world.remarked("endpoint claimed from elsewhere") == []
    assert twin.remove() == [REMOVED]
    assert bench.state == "unknown"


def test_r52_an_endpoint_claimed_from_another_address_is_a_takeover_counted_and_logged_once() -> None:
    world = World()
    bench = world.worker()
    thief = world.bench(address=ELSEWHERE)
    for _ in range(3):
        assert thief.ping() == [PONG]
    assert world.counters.takeovers == 1
    (line,) = world.remarked("endpoint claimed from elsewhere")
    assert line["endpoint"] == FIRST
    assert world.workers == 1
    assert bench.state == "idle"


# -------------------------------------------------------------------- R53: dialling


def test_r53_a_refused_dial_is_tried_again_every_50_ms_for_a_second_then_off_the_list() -> None:
    world = World()
    world.places[FIRST] = "refused"
    bench = world.bench()
    started = world.now
    assert bench.ping() == [PONG]
    world.wait(3)
    times = [when - started for when, _ in world.dials]
    assert len(times) in (20, 21)
    assert [b - a for a, b in pairwise(times)] == pytest.approx([0.05] * (len(times) - 1))
    assert times[-1] <= 1.0
    assert bench.state == "away"
    assert world.remarked("worker not reached") == [{"worker": FIRST}]


def test_r53_the_next_ping_of_one_that_was_not_reached_begins_anew() -> None:
    world = World()
    world.places[FIRST] = "refused"
    bench = world.bench()
    bench.ping()
    world.wait(5)
    world.places[FIRST] = "open"
    assert bench.state == "away"
    assert bench.ping() == [PONG]
    assert bench.state == "idle"


def test_r53_a_worker_that_pings_before_it_listens_is_found_within_50_ms() -> None:
    world = World()
    world.places[FIRST] = "refused"
    bench = world.bench()
    bench.ping()
    world.wait(0.3)
    world.places[FIRST] = "open"
    world.wait(0.05)
    assert bench.state == "idle"


def test_r53_pings_while_it_is_dialled_do_not_prolong_the_dialling() -> None:
    world = World()
    world.places[FIRST] = "refused"
    bench = world.bench()
    bench.ping()
    world.wait_pinging(0.9, bench, every=0.1)
    world.wait(0.15)
    assert bench.state == "away"


@pytest.mark.parametrize("mode", ["hangs", "mute"])
def test_r53_a_place_that_never_answers_is_off_the_list_after_a_second(mode: str) -> None:
    """Be it that nobody accepts, or that somebody does and never greets."""
    world = World()
    world.places[FIRST] = mode
    bench = world.bench()
    assert bench.ping() == [PONG]
    world.wait(0.9)
    assert bench.state == "dialling"
    world.wait(0.2)
    assert bench.state == "away"
    assert len(world.dials) == 1
    assert [peer for peer in world.line.peers if peer.dialled] == []


def test_r53_a_place_that_speaks_something_else_is_off_the_list_after_a_second() -> None:
    world = World()
    world.places[FIRST] = "mute"
    bench = world.bench()
    bench.ping()
    bench.end.feed(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    world.wait(1.1)
    assert bench.state == "away"
    assert world.workers == 0


def test_r53_memory_is_flat_over_10_000_rounds_of_register_and_remove() -> None:
    world = World()
    registrant = world.connect(BACKEND)
    for number in range(10_000):
        endpoint = f"tcp://192.0.2.1:{1024 + number}"
        registrant.hear(b"", fields(PING, endpoint))
        if number % 3 == 0:
            world.turn()
        registrant.hear(b"", fields(REMOVE, endpoint))
        if number % 50 == 0:
            world.turn()
            registrant.messages()
            world.reached.clear()
    world.turn()
    assert world.session._posts == {}
    assert world.session._away == {}
    assert len(world.session._alarms) < 100
    assert len(world.line.peers) == 1
    assert world.line._deadlines.armed <= 1
    assert len(world.broker._deadlines) < 100


def test_r53_memory_is_bounded_over_10_000_endpoints_that_are_never_removed() -> None:
    world = World()
    registrant = world.connect(BACKEND)
    for number in range(10_000):
        endpoint = f"tcp://192.0.2.1:{1024 + number}"
        world.places[endpoint] = "refused"
        registrant.hear(b"", fields(PING, endpoint))
        if number % 500 == 0:
            world.wait(1.1)
            registrant.messages()
    world.wait(1.1)
    assert len(world.session._posts) == len(world.session._away) == POSTS_KEPT
    assert world.session._alarms.armed == 0
    assert len(world.session._alarms) < 100
    assert len(world.line.peers) == 1


def test_r53_endpoints_that_are_dialled_at_once_are_bounded_and_those_beyond_wait_for_their_next_ping() -> None:
    """I5: nothing that peers fill is without a bound."""
    world = World()
    registrant = world.connect(BACKEND)
    for number in range(5_000):
        endpoint = f"tcp://192.0.2.1:{1024 + number}"
        world.places[endpoint] = "hangs"
        registrant.hear(b"", fields(PING, endpoint))
    world.turn()
    assert registrant.told() == [PONG] * 5_000
    assert len(world.session._posts) <= 2 * POSTS_KEPT
    assert len(world.dials) <= POSTS_KEPT
    world.wait(1.1)
    bench = world.worker()
    assert bench.state == "idle"


def test_what_was_learned_of_an_endpoint_is_kept_for_the_last_so_many() -> None:
    world = World()
    bench, _ = world.busy()
    bench.finish()
    bench.die()
    assert bench.post.has_ids
    registrant = world.connect(BACKEND)
    for number in range(POSTS_KEPT):
        endpoint = f"tcp://192.0.2.1:{10_000 + number}"
        registrant.hear(b"", fields(PING, endpoint))
        if number % 100 == 99:
            world.turn()
            for end in list(world.ends):
                if end is not registrant and end is not bench.registrant and end.peer and end.peer.dialled:
                    world.line.ended(end.peer, "reset")
            world.turn()
    assert bench.state == "unknown"


def test_a_connection_that_comes_to_stand_after_it_was_given_up_makes_no_worker() -> None:
    """REMOVE, and the last bytes of the handshake, within one turn of the loop."""
    world = World()
    bench = world.bench()
    world.places[FIRST] = "mute"
    bench.ping()
    end = bench.end
    end.is_frozen = False
    bench.registrant.hear(b"", fields(REMOVE, FIRST))
    end.pump()
    assert end.peer is not None
    assert end.peer.is_open
    world.turn()
    assert world.workers == 0
    assert bench.state == "unknown"
    assert end.is_over


def test_a_worker_for_whose_service_there_is_no_room_is_not_let_in_and_harms_nobody() -> None:
    world = World(policy=Policy(max_services=1))
    world.broker.submit("other", b"", Nobody(), Wishes(waits=True), world.now)
    bench = world.bench()
    assert bench.ping() == [PONG]
    assert world.workers == 0
    world.wait(2)
    assert bench.state == "away"
    assert world.counters.internal_errors == 0
    assert world.remarked("worker refused")


class Nobody:
    """A caller whose answers nobody reads."""

    recipient = None


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
    job = world.broker.submit("default", b"", Nobody(), Wishes(waits=True), world.now)
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
    first.end.hear(*frames)
    world.turn()
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
    assert bench.post.rest == 1
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
    assert world.counters.handed_out == 3


def test_r8_a_run_time_shorter_than_the_wake_time_does_not_run_while_the_worker_is_only_asked() -> None:
    """No worker has seen the job: nothing is spent, whatever its job_timeout is."""
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


# -------------------------------------------------------------------- R56: whose result


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
    assert caller.told() == [b"lost: its worker broke the step: foreign job id"]
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
    bench.end.hear(*frames)
    world.turn()
    assert caller.ending() == "lost"
    assert bench.state == "away"


def test_a_second_jobres_that_nobody_asked_for_drops_the_worker_and_harms_no_job() -> None:
    world = World(attempts=1)
    first, caller = world.busy()
    second = world.worker(SECOND)
    answer = fields(JOBRES, first.job_id, b"result")
    first.end.hear(b"", answer)
    first.end.hear(b"", answer)
    world.turn()
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
    first.end.hear(b"", answer)
    first.end.hear(b"", answer)
    world.turn()
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


# -------------------------------------------------------------------- a worker dies


def test_a_worker_that_dies_while_idle_is_off_the_list_at_once() -> None:
    world = World()
    first, second = world.worker(), world.worker(SECOND)
    first.die()
    assert first.state == "away"
    caller = world.call()
    assert second.work() == b"job"
    assert caller.told() == [b"result"]


def test_a_worker_that_dies_before_give_has_not_seen_the_job() -> None:
    world = World(attempts=1)
    first, caller = world.asked()
    second = world.worker(SECOND)
    first.die()
    assert world.job().spent == 0
    assert second.work() == b"job"
    assert caller.told() == [b"result"]


def test_a_worker_that_dies_between_give_and_jobres_costs_an_attempt() -> None:
    world = World()
    first, caller = world.busy()
    second = world.worker(SECOND)
    first.die()
    assert world.job().spent == 1
    assert [ending.reason for ending in world.job().history or ()] == ["its worker's connection ended"]
    world.wait(0.2)
    assert second.work() == b"job"
    assert caller.told() == [b"result"]


def test_a_worker_that_dies_in_the_turn_in_which_it_is_chosen_has_not_seen_the_job() -> None:
    world = World(attempts=1)
    first, second = world.worker(), world.worker(SECOND)
    caller = world.caller()
    caller.end.hear(b"", b"job")
    assert first.end.peer is not None
    world.line.ended(first.end.peer, "reset")
    world.turn()
    assert second.work() == b"job"
    assert caller.told() == [b"result"]


def test_a_worker_that_says_remove_in_the_turn_in_which_it_is_chosen_has_not_seen_the_job() -> None:
    world = World(attempts=1)
    first, second = world.worker(), world.worker(SECOND)
    caller = world.caller()
    caller.end.hear(b"", b"job")
    first.registrant.hear(b"", fields(REMOVE, FIRST))
    world.turn()
    assert first.told() == []
    assert second.work() == b"job"
    assert caller.told() == [b"result"]


def test_d3_a_worker_that_comes_back_with_the_same_endpoint_is_a_new_life() -> None:
    world = World()
    bench, caller = world.busy()
    (before,) = world.broker.roster.workers
    bench.end.cut()
    assert bench.ping() == [PONG]
    (after,) = world.broker.roster.workers
    assert after != before
    assert len(bench.lives) == 2
    world.wait(0.2)
    assert bench.work(b"again") == b"job"
    assert caller.told() == [b"again"]


def test_d12_a_frozen_worker_with_a_job_is_lost_after_15_seconds() -> None:
    world = World()
    first, caller = world.busy()
    second = world.worker(SECOND)
    first.end.is_frozen = True
    world.wait_pinging(15.2, second)
    assert first.state == "away"
    world.wait(0.2)
    assert second.work() == b"job"
    assert caller.told() == [b"result"]


# -------------------------------------------------------------------- R57: laggy workers


def test_r57_no_jobres_in_time_removes_the_worker_closes_its_connection_and_asks_another() -> None:
    world = World(job_timeout=10)
    first, caller = world.busy()
    second = world.worker(SECOND)
    world.wait_pinging(9.9, first, second, every=3.3)
    assert first.state == "working"
    world.wait(0.2)
    assert first.end.is_over
    assert first.state == "resting"
    assert caller.told() == []
    assert [ending.outcome for ending in world.job().history or ()] == ["timed out"]
    world.wait(1.3)
    assert second.work(b"second") == b"job"
    assert caller.told() == [b"second"]
    assert world.counters.late_results == 0


def test_r57_the_laggy_workers_next_ping_after_a_second_registers_it() -> None:
    world = World(job_timeout=5, attempts=1)
    bench, caller = world.busy()
    world.wait(5)
    assert caller.ending() == "timed out"
    world.wait(0.9)
    assert bench.ping() == [PONG]
    assert bench.state == "resting"
    world.wait(0.1)
    assert bench.ping() == [PONG]
    assert bench.state == "idle"


def test_r57_while_it_is_still_at_it_the_back_off_goes_on_from_there() -> None:
    world = World(job_timeout=5, attempts=1)
    bench, _ = world.busy()
    world.wait(6)
    bench.ping()
    world.call(b"next")
    assert bench.told() == [WAKE]
    world.wait(1)
    assert bench.post.rest == 2


def test_r12_the_next_attempt_goes_to_a_worker_that_has_not_had_the_job() -> None:
    world = World()
    first, caller = world.busy()
    second = world.worker(SECOND)
    first.end.cut()
    first.ping()
    assert first.state == "idle"
    world.wait(0.2)
    assert second.accept() == b"job"
    second.die()
    assert first.accept(within=2.5) == b"job"
    first.finish(b"third time")
    assert caller.told() == [b"third time"]


def test_r9_three_attempts_by_default_then_the_caller_is_told() -> None:
    world = World(job_timeout=5)
    caller = world.call()
    for endpoint in (FIRST, SECOND, THIRD):
        bench = world.worker(endpoint)
        assert bench.accept(within=2.5) == b"job"
        assert caller.told() == []
        world.wait(5)
    assert caller.told() == [b"timed out: no result within 5 s"]
    assert world.ended == {"timed out": 1}
    assert world.counters.handed_out == 3


def test_r10_three_deaths_end_a_job_however_many_attempts_it_has() -> None:
    world = World(attempts=100)
    caller = world.caller()
    bench = world.worker()
    caller.call(b"poison")
    for _ in range(3):
        assert bench.accept() == b"poison"
        bench.end.cut()
        bench.ping()
        world.wait_pinging(3, bench)
    assert caller.ending() == "lost"


def test_attempts_of_the_url_win() -> None:
    world = World(attempts=1, job_timeout=5)
    _, caller = world.busy()
    world.worker(SECOND)
    world.wait(5)
    assert caller.ending() == "timed out"


def test_without_a_job_timeout_nobody_is_laggy() -> None:
    world = World(job_timeout=0)
    bench, caller = world.busy()
    world.wait_pinging(5_000, bench, every=500)
    bench.finish()
    assert caller.told() == [b"result"]


def test_a_jobs_own_deadline_that_passes_while_it_runs_removes_the_laggy_worker_too() -> None:
    world = World()
    bench = world.worker()
    caller = world.caller()
    assert caller.end.peer is not None
    wishes = Wishes(waits=True, queue_timeout=10, job_timeout=60)
    world.broker.submit("default", b"job", caller.end.peer, wishes, world.now, deadline=world.now + 5)
    world.turn()
    bench.accept()
    world.wait(5)
    assert caller.ending() == "timed out"
    assert bench.end.is_over
    assert bench.state == "resting"


# -------------------------------------------------------------------- cancel


def test_cancel_while_it_is_asked_sends_no_job_and_give_frees_the_worker() -> None:
    world = World()
    bench, caller = world.asked()
    world.withdraw()
    assert caller.ending() == "cancelled"
    assert bench.state == "waking, unproven"
    waiting = world.call(b"next")
    assert bench.told() == []
    bench.say(GIVE)
    assert bench.work() == b"next"
    assert waiting.told() == [b"result"]
    assert world.counters.late_results == 0


def test_cancel_while_it_is_asked_and_no_give_comes() -> None:
    world = World()
    bench, _ = world.asked()
    world.withdraw()
    world.wait(1)
    assert bench.state == "resting"
    assert world.workers == 0


def test_cancel_while_it_works_leaves_the_worker_unproven_until_its_result() -> None:
    """D11: it may end what it does; its result reaches nobody."""
    world = World()
    bench, caller = world.busy()
    world.withdraw()
    assert caller.ending() == "cancelled"
    assert bench.state == "working, unproven"
    waiting = world.call(b"next")
    assert bench.told() == []
    bench.finish(b"late")
    assert world.counters.late_results == 1
    assert caller.told() == []
    assert bench.work(b"new") == b"next"
    assert waiting.told() == [b"new"]


def test_a_cancelled_worker_that_never_answers_is_let_go_in_the_end() -> None:
    world = World(unproven_limit=100)
    bench, _ = world.busy()
    world.withdraw()
    world.wait_pinging(99, bench, every=3)
    assert bench.state == "working, unproven"
    world.wait(1)
    assert bench.state == "away"
    assert bench.end.is_over


def test_cancel_in_the_turn_in_which_it_is_chosen_leaves_the_worker_idle() -> None:
    world = World()
    bench = world.worker()
    caller = world.caller()
    caller.end.hear(b"", b"job")
    world.withdraw()
    assert bench.told() == []
    assert bench.state == "idle"
    assert caller.ending() == "cancelled"


def test_r18_a_caller_that_goes_while_a_worker_is_only_asked_leaves_no_work_behind() -> None:
    world = World()
    bench, caller = world.asked()
    caller.end.cut()
    bench.say(GIVE)
    assert bench.told() == []
    assert bench.state == "idle"
    assert world.ended == {"cancelled": 1}


def test_r18_a_caller_that_goes_while_its_job_waits_withdraws_it() -> None:
    world = World()
    caller = world.call()
    caller.end.cut()
    assert world.ended == {"cancelled": 1}


def test_r19_a_caller_that_goes_while_its_job_runs_leaves_the_result_unclaimed() -> None:
    world = World()
    bench, caller = world.busy()
    caller.end.cut()
    bench.finish()
    assert world.counters.unclaimed_results == 1
    assert bench.state == "idle"


# -------------------------------------------------------------------- lease


def test_d5_an_idle_worker_that_does_not_ping_is_removed_after_15_seconds() -> None:
    world = World()
    bench = world.worker()
    world.wait(14.9)
    assert bench.state == "idle"
    world.wait(0.1)
    assert bench.state == "away"
    assert bench.end.is_over
    assert world.counters.expired_workers == 1
    (line,) = world.remarked("worker dismissed")
    assert "silent for 15 s" in line["reason"]


def test_pings_extend_the_lease() -> None:
    world = World()
    bench = world.worker()
    world.wait_pinging(120, bench, every=5)
    assert bench.state == "idle"
    assert len(bench.lives) == 1


def test_d5_a_busy_worker_needs_no_ping() -> None:
    world = World()
    bench, caller = world.busy()
    world.wait(59)
    assert bench.state == "working"
    bench.finish()
    assert caller.told() == [b"result"]


def test_a_jobres_restarts_the_lease() -> None:
    world = World()
    bench, _ = world.busy()
    world.wait(40)
    bench.finish()
    world.wait(14.9)
    assert bench.state == "idle"
    world.wait(0.2)
    assert bench.state == "away"


def test_a_give_restarts_the_lease() -> None:
    world = World(wake_timeout=10)
    bench = world.worker()
    world.wait(14)
    world.call()
    assert bench.told() == [WAKE]
    world.wait(5)
    bench.say(GIVE)
    world.withdraw()
    assert bench.state == "working, unproven"
    (worker,) = world.broker.roster.workers.values()
    assert worker.seen == world.now


def test_a_ping_from_a_worker_that_expired_registers_it_again() -> None:
    world = World()
    bench = world.worker()
    world.wait(20)
    assert bench.ping() == [PONG]
    assert bench.state == "idle"


def test_d13_our_own_pause_expires_nobody() -> None:
    world = World()
    bench = world.worker()
    world.late(60)
    assert bench.state == "idle"
    assert world.counters.expired_workers == 0


def test_d13_a_give_that_lay_unread_while_we_were_paused_is_in_time() -> None:
    world = World(attempts=1)
    bench, caller = world.asked()
    bench.end.stream.read_dry = lambda: bench.end.hear(b"", GIVE)  # type: ignore[method-assign]
    world.late(5)
    del bench.end.stream.read_dry
    bench.job_id = bench.told()[0].split(b":::")[1]
    bench.finish()
    assert caller.told() == [b"result"]
    assert bench.post.rest == 0


# -------------------------------------------------------------------- callers


def test_a_job_waits_for_queue_timeout_and_then_its_caller_is_told() -> None:
    world = World()
    caller = world.call()
    world.wait(9.9)
    assert caller.told() == []
    world.wait(0.1)
    assert caller.told() == [b"timed out: no worker was free within 10 s"]


def test_all_busy_waits_for_queue_timeout_too() -> None:
    world = World(queue_timeout=3)
    bench, first = world.busy()
    second = world.call(b"next")
    world.wait(3)
    assert second.ending() == "timed out"
    bench.finish()
    assert first.told() == [b"result"]


@pytest.mark.parametrize("kind", ["REQ", "DEALER"])
def test_callers_are_req_or_dealer_sockets(kind: str) -> None:
    world = World()
    bench = world.worker()
    end = world.connect(FRONTEND, kind=kind)
    end.say(b"", b"job")
    bench.work()
    assert end.messages() == [[b"", b"result"]]


def test_an_ending_is_told_as_in_pingpong() -> None:
    world = World(attempts=1)
    bench, caller = world.busy()
    bench.die()
    assert caller.end.messages() == [[b"", b"", ERROR, b"lost: its worker's connection ended"]]


def test_a_job_over_max_payload_is_refused() -> None:
    world = World()
    caller = world.call(bytes(MAX_PAYLOAD + 1))
    (told,) = caller.told()
    assert told == b"refused: payload of 10001 bytes is over max_payload 10000"
    assert world.counters.refused == 1


@pytest.mark.parametrize("frames", [(b"job",), (b"x", b"job"), (b"", b"a", b"b")])
def test_a_call_of_another_shape_is_counted_and_not_answered(frames: tuple[bytes, ...]) -> None:
    world = World()
    caller = world.caller()
    caller.end.say(*frames)
    assert caller.told() == []
    assert sum(world.bad.values()) == 1
    assert world.counters.accepted == 0


def test_words_of_workers_are_jobs_at_the_frontend() -> None:
    world = World()
    bench = world.worker()
    caller = world.call(fields(PING, SECOND))
    assert bench.work() == fields(PING, SECOND)
    assert caller.told() == [b"result"]
    assert world.state(SECOND) == "unknown"


def test_a_busy_house_refuses() -> None:
    world = World(policy=Policy(max_jobs=1))
    world.call()
    caller = world.call(b"next")
    assert caller.ending() == "refused"


# -------------------------------------------------------------------- the broker stops


def test_drain_refuses_what_waits_and_lets_end_what_runs() -> None:
    world = World()
    bench, caller = world.busy()
    waiting = world.call(b"next")
    world.drain()
    assert waiting.ending() == "refused"
    late = world.call(b"late")
    assert late.ending() == "refused"
    assert bench.ping() == [PONG]
    bench.finish()
    assert caller.told() == [b"result"]
    assert bench.state == "idle"


def test_drain_while_a_worker_is_asked_lets_it_do_the_job() -> None:
    world = World()
    bench, caller = world.asked()
    world.drain()
    bench.say(GIVE)
    bench.job_id = bench.told()[0].split(b":::")[1]
    bench.finish()
    assert caller.told() == [b"result"]


def test_drain_while_a_worker_is_asked_and_does_not_answer_refuses_the_job() -> None:
    world = World()
    _, caller = world.asked()
    world.drain()
    world.wait(1)
    assert caller.ending() == "refused"


def test_a_worker_that_is_killed_by_an_operator_is_hung_up_on() -> None:
    world = World(attempts=1)
    bench, caller = world.busy()
    (worker,) = world.broker.roster.workers.values()
    world.broker.drain(worker, world.now, at_once=True)
    world.turn()
    assert bench.end.is_over
    assert caller.ending() == "lost"
    assert bench.ping() == [PONG]
    assert bench.state == "idle"


def test_abort_gives_up_what_runs_and_what_is_asked() -> None:
    world = World(attempts=1)
    _, caller = world.busy()
    asked = world.worker(SECOND)
    other = world.call(b"next")
    assert asked.told() == [WAKE]
    world.broker.is_draining = True
    world.broker.abort(world.now)
    world.line.turn()
    for end in world.ends:
        end.pump()
    assert caller.ending() == "lost"
    assert other.told() != []


# -------------------------------------------------------------------- all together


@pytest.mark.parametrize("seed", range(5))
def test_many_workers_and_callers_each_get_their_own(seed: int) -> None:
    """I7, by hand: every result is of the caller's own job."""
    world = World()
    benches = [world.worker(f"tcp://192.0.2.1:{9000 + number}") for number in range(5)]
    callers = [world.caller() for _ in range(20)]
    for number, caller in enumerate(callers):
        caller.call(b"%d" % number)
    step = seed
    while world.present:
        step += 1
        bench = benches[step * 7 % 5]
        for word in bench.told():
            if word == WAKE:
                bench.say(GIVE)
            else:
                _, bench.job_id, data = word.split(b":::", 2)
                bench.finish(b"did " + data)
    assert [caller.told() for caller in callers] == [[b"did %d" % number] for number in range(20)]


def kinds_of_trouble() -> list[tuple[str, Callable[[World, Bench, Caller], None]]]:
    return [
        ("death", lambda world, bench, caller: bench.die()),
        ("remove", lambda world, bench, caller: bench.remove() and None),
        ("ping", lambda world, bench, caller: bench.ping() and None),
        ("cancel", lambda world, bench, caller: world.withdraw() if world.present else None),
        ("caller gone", lambda world, bench, caller: None if caller.end.is_over else caller.end.cut()),
        ("drain", lambda world, bench, caller: world.drain()),
        ("wake time", lambda world, bench, caller: world.wait(1)),
        ("run time", lambda world, bench, caller: world.wait(5)),
        ("give", lambda world, bench, caller: None if bench.end.is_over else bench.say(GIVE)),
        ("result", lambda world, bench, caller: None if bench.end.is_over else bench.finish()),
        ("garbage", lambda world, bench, caller: None if bench.end.is_over else bench.say(b"?")),
    ]


@pytest.mark.parametrize("second", kinds_of_trouble(), ids=lambda each: each[0])
@pytest.mark.parametrize("first", kinds_of_trouble(), ids=lambda each: each[0])
@pytest.mark.parametrize("stage", ["asked", "busy"])
def test_any_two_troubles_one_after_the_other_leave_everything_in_order(
    stage: str, first: tuple, second: tuple
) -> None:
    """The world checks all its books after each; in the end every caller that stayed is told once."""
    world = World(unproven_limit=10, job_timeout=5)
    bench, caller = getattr(world, stage)()
    for _, trouble in (first, second):
        if not bench.registrant.is_over:
            trouble(world, bench, caller)
    world.wait(30)
    assert world.present == 0
    assert len(caller.told()) <= 1
    assert caller.end.is_over or sum(world.counters.ended.values()) == 1
    world.places[FIRST] = "open"
    if not world.broker.is_draining:
        assert bench.ping() == [PONG]
        assert bench.state == "idle"
        last = world.call(b"last")
        assert bench.work() == b"last"
        assert last.told() == [b"result"]


def test_the_address_of_a_worker_that_was_away_may_change_without_a_takeover() -> None:
    world = World()
    bench = world.worker(address=HOME)
    bench.end.cut()
    other = world.bench(address=ELSEWHERE)
    assert other.ping() == [PONG]
    assert world.counters.takeovers == 0
