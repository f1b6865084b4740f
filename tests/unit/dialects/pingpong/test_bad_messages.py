"""Messages of PingPong that are ambiguous, malformed or too large: R16, R44, R45, R48."""

from __future__ import annotations

import pytest

from dragoman.carriers.carrier import TooLarge
from dragoman.dialects.pingpong.editions import Edition

from .world import (
    DISCONNECT,
    EXIT,
    JOB_COMPLETE,
    MAX_PAYLOAD,
    PACKAGE,
    PING,
    PLAIN,
    PONG,
    READY,
    World,
    both,
    error,
    finish,
)

# -------------------------------------------------------------------- words that are also payloads: R44, R45


@pytest.mark.parametrize("word", [PONG, EXIT])
def test_r45_in_plain_a_job_that_is_a_reserved_word_fails_and_is_never_sent(word: bytes) -> None:
    world = World()
    worker = world.ready_worker()
    caller = world.caller()
    (answer,) = world.tell(caller, word)
    assert answer[:2] == [b"", b"ERROR"]
    assert answer[2].startswith(b"failed: reserved word")
    assert worker.told() == []
    assert world.state(worker) == "idle"


def test_r45_the_job_behind_a_reserved_word_is_not_held_up() -> None:
    world = World()
    callers = [world.call(payload) for payload in (PONG, EXIT, b"job")]
    worker = world.worker()
    assert world.tell(worker, READY) == [[PONG], [b"job"]]
    assert [len(caller.told()) for caller in callers] == [1, 1, 0]


@pytest.mark.parametrize("word", [PONG, EXIT, READY, PING])
def test_r45_in_package_every_word_can_be_a_job(word: bytes) -> None:
    world = World(edition=PACKAGE)
    worker, caller = world.busy_worker(word)
    finish(world, worker, word)
    assert caller.told() == [[word]]


@pytest.mark.parametrize("word", [READY, PING, DISCONNECT, b"ERROR", b"pong", b"PONG "])
def test_r45_in_plain_all_other_words_can_be_jobs(word: bytes) -> None:
    world = World()
    worker, caller = world.busy_worker(word)
    world.tell(worker, b"fine")
    assert caller.told() == [[b"fine"]]


@pytest.mark.parametrize("word", [PONG, EXIT])
def test_r44_pong_and_exit_from_a_busy_worker_are_never_its_result(word: bytes) -> None:
    world = World(job_timeout=5)
    worker, caller = world.busy_worker()
    assert world.tell(worker, word) == []
    assert world.state(worker) == "busy"
    world.wait(5.1)
    assert caller.told() == error("timed out: no result within 5 s")


def test_r44_a_result_that_is_ping_is_a_ping_and_the_job_ends_by_time_out() -> None:
    world = World(job_timeout=5)
    worker, caller = world.busy_worker()
    assert world.tell(worker, PING) == [[PONG]]
    assert world.state(worker) == "busy"
    world.wait(5.1)
    assert caller.told() == error("timed out: no result within 5 s")


def test_r44_a_result_that_is_ready_is_counted_as_ambiguous() -> None:
    world = World()
    worker, caller = world.busy_worker()
    world.tell(worker, READY)
    assert world.counters.ambiguous_results == 1
    assert caller.told() == []


# -------------------------------------------------------------------- rubbish: R48, D6


@both
@pytest.mark.parametrize(
    "message", [[], [b""], [b"PING"], [b"x", b"PING"], [b"", b"READY", b"x"], [b""] * 9, [b"", b"a", b"b"]]
)
def test_r48_d6_rubbish_from_a_busy_worker_changes_nothing(edition: Edition, message: list[bytes]) -> None:
    world = World(edition=edition)
    worker, caller = world.busy_worker()
    assert world.raw(worker, message) == []
    assert sum(world.bad.values()) == 1
    assert world.state(worker) == "busy"
    finish(world, worker, b"result")
    assert caller.told() == [[b"result"]]


@pytest.mark.parametrize("message", [[], [b""], [b"job"], [b"x", b"job"], [b"", b"a", b"b"], [b""] * 9])
def test_r48_d6_rubbish_from_a_caller_is_dropped_and_its_next_job_is_taken(message: list[bytes]) -> None:
    world = World()
    worker = world.ready_worker()
    caller = world.caller()
    assert world.raw(caller, message) == []
    assert sum(world.bad.values()) == 1
    assert worker.told() == []
    world.tell(caller, b"job")
    assert worker.told() == [[b"job"]]


def test_rubbish_from_an_unknown_worker_does_not_join_it() -> None:
    world = World()
    worker = world.worker()
    world.raw(worker, [b"PING"])
    assert world.state(worker) == "unknown"


# -------------------------------------------------------------------- too large, both ways: R16


def test_r16_a_job_over_max_payload_is_refused_by_name() -> None:
    world = World()
    caller = world.caller()
    told = world.raw(caller, TooLarge([b""], 5_000))
    assert told == error(f"refused: payload of 5000 bytes is over max_payload {MAX_PAYLOAD}")
    assert world.counters.refused == 1
    assert world.present == 0


@both
def test_r16_a_result_over_max_payload_fails_the_job_and_frees_the_worker(edition: Edition) -> None:
    world = World(edition=edition)
    worker, caller = world.busy_worker()
    frames = [b""] if edition is PLAIN else [b"", JOB_COMPLETE, world.token(worker), b""]
    assert world.raw(worker, TooLarge(frames, 5_000)) == [[PONG]]
    assert caller.told() == error(f"failed: its result of 5000 bytes is over max_payload {MAX_PAYLOAD}")
    assert world.state(worker) == "idle"
    assert world.bad == {"too large": 1}


def test_r16_a_message_over_max_payload_from_an_stuck_worker_proves_it_free() -> None:
    world = World(job_timeout=5)
    worker, _ = world.busy_worker()
    world.wait(6)
    world.raw(worker, TooLarge([b""], 5_000))
    assert world.state(worker) == "idle"
    assert world.counters.late_results == 1


@pytest.mark.parametrize("is_known", [True, False])
def test_r16_a_message_over_max_payload_from_a_worker_without_a_job_is_only_counted(is_known: bool) -> None:
    world = World()
    worker = world.ready_worker() if is_known else world.worker()
    world.raw(worker, TooLarge([b""], 5_000))
    assert world.bad == {"too large": 1}
    assert world.state(worker) == ("idle" if is_known else "unknown")


def test_r16_d2_in_package_a_too_large_result_of_an_earlier_attempt_does_not_fail_the_current_one() -> None:
    world = World(edition=PACKAGE, job_timeout=5)
    worker, _ = world.busy_worker(b"A")
    old = world.token(worker)
    world.wait(6)
    world.tell(worker, READY)
    caller = world.call(b"B")
    worker.told()
    world.raw(worker, TooLarge([b"", JOB_COMPLETE, old, b""], 5_000))
    assert caller.told() == []
    assert world.state(worker) == "busy"
