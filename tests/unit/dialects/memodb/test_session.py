"""The broker's side of MemoDB: every row and decision of its page, and rules R60 to R80."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dragoman.core.model import Outcome, Wishes
from dragoman.core.policy import Policy
from dragoman.dialects.memodb.answers import RECORD

from .world import (
    DISCONNECT,
    ELSEWHERE,
    MAX_PAYLOAD,
    READY,
    Said,
    Side,
    World,
    header,
    heartbeat,
    job,
    ready,
    result,
)

DAY = 86_400_000


def disconnected(request: int, id: bytes) -> list[Said]:
    return [Said(request, "DISCONNECT", id)]


def beats(request: int, id: bytes) -> list[Said]:
    return [Said(request, "HEARTBEAT", id)]


def given(request: int, id: bytes, payload: bytes = b"job", timeout: int = 5_000, service: str = "echo") -> list[Said]:
    return [Said(request, "JOB", id, (service, timeout), payload)]


def answered(request: int, payload: bytes = b"result") -> list[Said]:
    return [Said(request, "RESULT", b"", (), payload)]


# -------------------------------------------------------------------- the vectors: what is on the wire


def test_a_job_s_way_there_and_back_byte_for_byte() -> None:
    """Message, the vectors."""
    world = World()
    side = world.connect()
    side.ask(1, bytes.fromhex("84 66 6d656d6f3031 01 40 81 64 6563686f"))
    ((id, _),) = world.session._guests.items()
    side.stream.taken.clear()
    side._seen = 0
    side.hear(2, bytes.fromhex("85 66 6d656d6f3031 02 40 64 6563686f 19 1388") + b"hello")
    world.line.turn()
    body = bytes.fromhex("85 66 6d656d6f3031 02 50") + id + bytes.fromhex("64 6563686f 19 1388") + b"hello"
    assert side.stream.taken == (4 + len(body)).to_bytes(8, "big") + b"\x80\0\0\x01" + body
    side.stream.taken.clear()
    side.hear(3, bytes.fromhex("84 66 6d656d6f3031 03 50") + id + b"\xf5" + b"bye")
    world.line.turn()
    to_caller = b"\x80\0\0\x02" + bytes.fromhex("83 66 6d656d6f3031 03 40") + b"bye"
    to_worker = b"\x80\0\0\x03" + bytes.fromhex("83 66 6d656d6f3031 05 50") + id
    assert side.stream.taken == b"".join(len(each).to_bytes(8, "big") + each for each in (to_caller, to_worker))


def test_ready_is_parked_and_answered_with_a_job() -> None:
    """The broker's side, READY."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    assert world.state(id) == "idle"
    assert caller.ask(7, job(b"hello")) == []
    assert side.heard() == given(1, id, b"hello")
    assert world.state(id) == "busy"


def test_ready_is_answered_with_heartbeat_when_there_is_no_job_within_heartbeat_after() -> None:
    """The broker's side, READY: both answers carry the id."""
    world = World()
    side = world.connect()
    id = world.worker(side)
    world.wait(9.99)
    assert side.heard() == []
    world.wait(0.01)
    assert side.heard() == beats(1, id)


def test_a_worker_that_comes_while_jobs_wait_gets_the_oldest_at_once() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    caller.ask(1, job(b"first"))
    caller.ask(2, job(b"second"))
    (said,) = side.ask(1, ready())
    assert (said.word, said.payload) == ("JOB", b"first")


def test_result_goes_to_the_caller_and_parks_the_worker() -> None:
    """The broker's side, RESULT."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    assert side.ask(2, result(id, b"answer")) == []
    assert caller.heard() == answered(501, b"answer")
    assert world.state(id) == "idle"
    assert world.counters.ended[Outcome.DONE] == 1
    caller.ask(502, job(b"next"))
    assert side.heard() == given(2, id, b"next")


def test_result_is_answered_with_the_next_job_that_waits() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    caller.ask(7, job(b"second"))
    assert side.ask(2, result(id)) == given(2, id, b"second")


def test_result_is_answered_with_heartbeat_after_ten_seconds() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    side.ask(2, result(id))
    world.wait(10)
    assert side.heard() == beats(2, id)


@pytest.mark.parametrize("flag", [(), (False,)])
def test_a_false_flag_is_as_good_as_none(flag: tuple[bool, ...]) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    assert side.ask(2, result(id, b"answer", *flag)) == []
    assert caller.heard() == answered(501, b"answer")
    assert world.state(id) == "idle"


def test_r70_result_with_goodbye_is_delivered_and_answered_with_disconnect() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    caller.ask(9, job(b"not for it"))
    assert side.ask(2, result(id, b"answer", True)) == disconnected(2, id)
    assert caller.heard() == answered(501, b"answer")
    assert world.state(id) == "gone"
    assert world.counters.handed_out == 1
    assert side.ask(3, heartbeat(id)) == disconnected(3, id)


def test_r70_on_one_connection_the_result_leaves_before_the_disconnect() -> None:
    world = World()
    side = world.connect()
    id = world.busy_worker(side, side)
    assert side.ask(2, result(id, b"answer", True)) == [*answered(501, b"answer"), *disconnected(2, id)]


def test_r70_goodbye_with_the_result_of_a_cancelled_job_is_goodbye_all_the_same() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    world.broker.withdraw(world.job(), world.now)
    assert side.ask(2, result(id, b"answer", True)) == disconnected(2, id)
    assert caller.heard() == []


def test_empty_job_and_empty_result_are_legal() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, payload=b"")
    side.ask(2, result(id, b""))
    assert caller.heard() == answered(501, b"")


def test_d7_the_longest_idle_worker_goes_first_and_jobs_go_in_the_order_they_came() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    first, second = world.worker(side, 1), world.worker(side, 2)
    for number in (1, 2, 3):
        caller.ask(number, job(b"%d" % number))
    assert side.heard() == [*given(1, first, b"1"), *given(2, second, b"2")]
    assert side.ask(3, result(second, b"two")) == given(3, second, b"3")
    assert caller.heard() == answered(2, b"two")


# -------------------------------------------------------------------- many on one connection


def test_many_workers_and_callers_share_one_connection() -> None:
    world = World()
    side = world.connect()
    ids = [world.worker(side, number) for number in range(1, 51)]
    assert len(set(ids)) == 50
    for number in range(100, 150):
        side.hear(number, job(b"%d" % number))
    world.turn()
    jobs = {said.id: said.payload for said in side.heard()}
    assert set(jobs) == set(ids)
    for request, id in enumerate(reversed(ids), 200):
        side.hear(request, result(id, b"of " + jobs[id]))
    world.turn()
    assert {(said.request, said.payload) for said in side.heard()} == {(n, b"of %d" % n) for n in range(100, 150)}


def test_a_worker_may_offer_several_services_in_any_order_and_twice() -> None:
    """READY's list."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side, 1, "zebra", "ape", "zebra")
    assert [service.name for service in world.record(id).services] == ["zebra", "ape"]
    caller.ask(1, job(b"a", service="ape"))
    assert side.heard() == given(1, id, b"a", service="ape")
    caller.ask(2, job(b"z", service="zebra"))
    assert side.ask(2, result(id)) == given(2, id, b"z", service="zebra")


def test_a_job_goes_only_to_workers_that_offer_its_service() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    world.worker(side, 1, "ape")
    caller.ask(1, job(service="zebra"))
    assert side.heard() == []
    zebra = world.worker(side, 2, "zebra")
    assert world.state(zebra) == "busy"


def test_a_header_known_from_the_job_before_is_not_taken_for_another() -> None:
    """Headers are remembered, of what a connection said last and of what a worker got: each still says what it says."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side, 1, "echo", "echo2")
    asked = [
        ("echo", 5_000),
        ("echo", 5_000),
        ("echo2", 5_000),
        ("echo", 5_001),
        ("echo", 50),
        ("echo", -1),
        ("echo", 5_000),
    ]
    for request, (service, timeout) in enumerate(asked, start=1):
        payload = b"\0" * request
        caller.ask(request, job(payload, service=service, timeout=timeout))
        assert side.heard() == given(request, id, payload, timeout, service)
        side.ask(request + 1, result(id, payload))
        assert caller.heard() == answered(request, payload)


@pytest.mark.parametrize("body", [b"\0", b"\xff", b"\0" * 200, b"", job()[:-4]])
def test_no_header_is_known_before_the_first_job(body: bytes) -> None:
    world = World()
    world.connect().ask(1, body)
    assert sum(world.bad.values()) == 1
    assert world.present == 0


@pytest.mark.parametrize("name", ["ünïcödé 名前", "a" * 128, "with space", "/", "0"])
def test_service_names_are_any_text_up_to_128_bytes(name: str) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side, 1, name)
    caller.ask(1, job(service=name))
    assert side.heard() == given(1, id, service=name)


@pytest.mark.parametrize(
    ("services", "reason"),
    [
        ([], "bad service list"),
        ([""], "bad service name"),
        (["ok", ""], "bad service name"),
        (["a" * 129], "bad service name"),
        (["a\nb"], "bad service name"),
        ([f"s{n}" for n in range(65)], "bad service list"),
        (["ok", 1], "wrong field"),
        ([["echo"]], "wrong field"),
    ],
)
def test_d6_a_ready_whose_list_is_bad_is_met_with_silence(services: list[object], reason: str) -> None:
    """READY's list: at most 64 names; empty names and an empty list are refused."""
    world = World()
    side = world.connect()
    assert side.ask(1, header(READY, b"", services)) == []
    assert world.bad == {reason: 1}
    assert world.workers == 0


def test_64_services_are_not_too_many() -> None:
    world = World()
    id = world.worker(world.connect(), 1, *(f"s{n}" for n in range(64)))
    assert len(world.record(id).services) == 64


def test_a_worker_whose_names_do_not_fit_any_more_is_met_with_silence() -> None:
    """R29: names that peers bring are bounded."""
    world = World(policy=Policy(max_services=2))
    side = world.connect()
    world.worker(side, 1, "a", "b")
    assert side.ask(2, ready("c")) == []
    assert world.workers == 1
    assert world.remarks.count("worker refused") == 1


# -------------------------------------------------------------------- ids: R66


def test_r66_ids_are_16_bytes_and_never_the_same() -> None:
    world = World()
    side = world.connect()
    ids = {world.worker(side, number) for number in range(1, 101)}
    assert len(ids) == 100
    assert {len(id) for id in ids} == {16}


@pytest.mark.parametrize("id", [b"", b"\xd8\x5f\xf4\x7f", b"x" * 15, b"x" * 16, b"x" * 17, b"x" * 1_000])
@pytest.mark.parametrize("word", [heartbeat, result])
def test_r66_an_unknown_id_of_any_length_is_answered_with_disconnect_and_that_very_id(
    word: Callable[[bytes], bytes], id: bytes
) -> None:
    world = World()
    side = world.connect()
    assert side.ask(1, word(id)) == disconnected(1, id)
    assert world.counters.late_results == (word is result)
    assert world.bad == {}


def test_r66_after_a_restart_of_the_broker_an_old_id_gets_disconnect_and_its_worker_begins_anew() -> None:
    world = World()
    old = world.worker(world.connect())
    world.restart()
    side = world.connect()
    assert side.ask(2, heartbeat(old)) == disconnected(2, old)
    new = world.worker(side, 3)
    assert new != old
    assert world.workers == 1


def test_r66_after_a_restart_the_result_of_an_old_job_reaches_nobody() -> None:
    world = World()
    side = world.connect()
    old = world.busy_worker(side, side)
    world.restart()
    side, caller = world.connect(), world.connect()
    caller.ask(501, job())
    assert side.ask(2, result(old, b"of an earlier life")) == disconnected(2, old)
    assert caller.heard() == []
    assert world.counters.late_results == 1


def test_r66_a_worker_s_id_used_from_another_address_gets_disconnect_and_harms_nobody() -> None:
    """T8: an id is good where it was given."""
    world = World()
    side, caller, thief = world.connect(), world.connect(), world.connect(ELSEWHERE)
    id = world.busy_worker(side, caller)
    assert thief.ask(9, result(id, b"forged")) == disconnected(9, id)
    assert thief.ask(10, heartbeat(id)) == disconnected(10, id)
    assert world.state(id) == "busy"
    assert caller.heard() == []
    side.ask(2, result(id, b"true"))
    assert caller.heard() == answered(501, b"true")


def test_r66_a_worker_s_id_used_from_another_address_cannot_fetch_its_answer_by_a_repeated_request() -> None:
    world = World()
    side, caller, thief = world.connect(), world.connect(), world.connect(ELSEWHERE)
    id = world.beating_worker(side)
    caller.ask(9, job(b"secret"))
    assert side.heard() == given(2, id, b"secret")
    assert thief.ask(2, heartbeat(id)) == disconnected(2, id)
    assert world.state(id) == "busy"


def test_workers_may_move_among_connections_of_one_address() -> None:
    """The key is the worker's id, not its connection."""
    world = World()
    side, other, caller = world.connect(), world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    assert other.ask(2, result(id, b"by another way")) == []
    assert caller.heard() == answered(501, b"by another way")
    caller.ask(7, job(b"next"))
    assert other.heard() == given(2, id, b"next")
    assert side.heard() == []


# -------------------------------------------------------------------- out of turn: R67, R68, R69


def test_r67_a_result_that_is_not_due_gets_disconnect_and_its_worker_is_gone() -> None:
    world = World()
    side = world.connect()
    id = world.beating_worker(side)
    assert side.ask(3, result(id, b"of nothing")) == disconnected(3, id)
    assert world.state(id) == "gone"
    assert world.counters.late_results == 1
    assert side.ask(4, heartbeat(id)) == disconnected(4, id)


def test_r67_a_result_where_a_heartbeat_is_due_gets_disconnect() -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    world.wait(10)
    assert side.heard() == beats(1, id)
    assert side.ask(2, result(id)) == disconnected(2, id)
    assert world.state(id) == "gone"


def test_r67_a_result_for_a_job_that_is_on_its_way_to_the_worker_is_not_booked_on_it() -> None:
    """The JOB has been decided and not been written: the job goes to somebody else, and no attempt is spent."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.beating_worker(side)
    caller.hear(7, job(b"wanted"))
    side.hear(3, result(id, b"a guess"))
    world.turn()
    assert side.heard() == disconnected(3, id)
    assert caller.heard() == []
    other = world.worker(side, 4)
    assert side.heard() == []
    assert world.state(other) == "busy"
    assert world.job().spent == 0


def test_r68_heartbeat_while_a_result_is_due_means_that_the_job_is_lost() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    assert side.ask(2, heartbeat(id)) == disconnected(2, id)
    assert world.state(id) == "gone"
    assert caller.heard() == []
    assert world.counters.ended[Outcome.LOST] == 1
    assert world.silences == {"lost": 1}


def test_r68_d8_while_attempts_remain_such_a_job_goes_to_another_worker() -> None:
    world = World(attempts=2)
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    other = world.worker(side, 10)
    assert side.ask(2, heartbeat(id)) == disconnected(2, id)
    world.wait(0.2)
    assert side.heard() == given(10, other)
    side.ask(11, result(other, b"second try"))
    assert caller.heard() == answered(501, b"second try")


def test_r69_a_second_heartbeat_while_parked_takes_the_place_of_the_first() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.beating_worker(side)
    assert side.ask(3, heartbeat(id)) == []
    assert world.state(id) == "idle"
    caller.ask(7, job())
    assert side.heard() == given(3, id)
    assert world.counters.late_results == 0


def test_r69_the_newer_request_wins_on_another_connection_too() -> None:
    world = World()
    side, other, caller = world.connect(), world.connect(), world.connect()
    id = world.beating_worker(side)
    assert other.ask(3, heartbeat(id)) == []
    caller.ask(7, job())
    assert other.heard() == given(3, id)
    assert side.heard() == []
    world.cut(side)
    assert world.state(id) == "busy"


def test_r69_another_ready_under_the_same_request_id_ends_the_first_registration() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    first = world.worker(side, 1, "ape")
    second = world.worker(side, 1, "zebra")
    assert world.state(first) == "gone"
    assert world.workers == 1
    caller.ask(7, job(service="zebra"))
    assert side.heard() == given(1, second, service="zebra")


def test_a_job_that_was_handed_out_to_a_registration_that_ended_is_lost() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    world.busy_worker(side, caller)
    world.worker(side, 1, "zebra")
    assert world.silences == {"lost": 1}


# -------------------------------------------------------------------- heartbeats: R75


def test_r75_a_heartbeat_unanswered_for_heartbeat_timeout_ends_the_worker() -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    world.wait(10)
    assert side.heard() == beats(1, id)
    world.wait(9.99)
    assert world.is_known(id)
    world.wait(0.02)
    assert world.state(id) == "gone"
    assert world.counters.expired_workers == 1
    assert side.heard() == []
    assert side.ask(2, heartbeat(id)) == disconnected(2, id)


def test_heartbeats_go_on_as_long_as_they_are_answered() -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    for request in range(1, 20):
        world.wait(10)
        assert side.heard() == beats(request, id)
        world.wait(9.9)
        assert side.ask(request + 1, heartbeat(id)) == []
        assert world.state(id) == "idle"
    assert world.workers == 1


def test_a_worker_that_owes_a_heartbeat_is_given_nothing_until_it_has_asked_again() -> None:
    """REQ/REP: there is no request that a job could be the answer to."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    world.wait(10)
    assert side.heard() == beats(1, id)
    caller.ask(7, job())
    assert side.heard() == []
    assert side.ask(2, heartbeat(id)) == given(2, id)


def test_heartbeat_timeout_is_what_it_says_whatever_detach_timeout_is() -> None:
    """The broker's side, HEARTBEAT: it must come within `heartbeat_timeout`; nobody is detached here."""
    world = World(heartbeat_timeout=120)
    side = world.connect()
    id = world.worker(side)
    world.wait(10)
    assert side.heard() == beats(1, id)
    world.wait(100)
    assert side.ask(2, heartbeat(id)) == []
    assert world.state(id) == "idle"


def test_a_short_detach_timeout_does_not_cut_heartbeat_timeout_short() -> None:
    world = World(detach_timeout=2)
    side = world.connect()
    id = world.worker(side)
    world.wait(10)
    assert side.heard() == beats(1, id)
    world.wait(9)
    assert side.ask(2, heartbeat(id)) == []
    assert world.state(id) == "idle"


def test_a_job_and_a_heartbeat_that_are_due_in_one_turn_are_not_both_the_answer_to_one_request() -> None:
    """The job is decided first, so it is the answer: after a HEARTBEAT its worker would never see it, and lose it."""
    world = World(attempts=2)
    lost, side, caller = world.connect(), world.connect(), world.connect()
    first = world.busy_worker(lost, caller, timeout=60_000)
    second = world.worker(side)
    world.wait(9.95)
    assert lost.ask(2, heartbeat(first)) == disconnected(2, first)  # the job rests for a tenth of a second now
    world.late(0.5)
    assert side.heard() == given(1, second, timeout=60_000)
    assert side.ask(2, result(second)) == []
    assert caller.heard() == answered(501)


def test_d13_a_pause_of_our_own_expires_nobody() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    parked = world.worker(side, 1)
    world.wait(5)
    owing = world.worker(side, 10)
    world.wait(5)
    assert side.heard() == beats(1, parked)
    parked, owing = owing, parked
    busy = world.worker(side, 20, "long")
    caller.ask(7, job(service="long", timeout=DAY))
    side.heard()
    world.late(3_600)
    assert world.workers == 3
    assert world.counters.expired_workers == 0
    assert side.heard() == beats(10, parked)
    assert side.ask(2, heartbeat(owing)) == []
    assert side.ask(11, heartbeat(parked)) == []
    assert side.ask(21, result(busy)) == []
    assert caller.heard() == answered(7)


def test_d13_after_a_pause_whoever_does_not_answer_is_expired_in_its_time() -> None:
    world = World()
    side = world.connect()
    world.worker(side)
    world.late(3_600)
    world.wait(20)
    assert world.workers == 0


def test_d13_a_detached_worker_is_not_given_up_for_a_pause_of_ours() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=-1)
    world.cut(side)
    world.wait(30)
    world.late(3_600)
    assert world.state(id) == "detached"
    world.connect().ask(2, result(id, b"kept"))
    assert caller.heard() == answered(501, b"kept")


# -------------------------------------------------------------------- the timeout of a JOB: R72


@pytest.mark.parametrize("timeout", [1, 23, 24, 255, 256, 999, 1_001, 2_007, 4_019, 65_535, 65_536, 131_071, DAY])
def test_r72_a_job_goes_out_with_the_timeout_it_came_with(timeout: int) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    caller.ask(1, job(timeout=timeout))
    assert side.heard() == given(1, id, timeout=timeout)
    assert world.counters.clamped_timeouts == 0


@pytest.mark.parametrize("timeout", [DAY + 1, 2**31, 2**32, 2**63, 2**64 - 1])
def test_r72_a_timeout_over_a_day_is_cut_down_and_counted(timeout: int) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    caller.ask(1, job(timeout=timeout))
    assert side.heard() == given(1, id, timeout=DAY)
    caller.ask(2, job(timeout=timeout))
    assert world.counters.clamped_timeouts == 2


def test_r72_minus_one_means_no_limit() -> None:
    world = World(detach_timeout=1e9)
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    caller.ask(1, job(timeout=-1))
    assert side.heard() == given(1, id, timeout=-1)
    world.now += 0.1
    world.broker.tick(world.now + 30 * 86_400)
    assert world.state(id) == "busy"
    side.ask(2, result(id))
    assert caller.heard() == answered(1)


def test_r72_zero_is_over_at_once_and_never_handed_out() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    world.worker(side)
    assert caller.ask(1, job(timeout=0)) == []
    assert side.heard() == []
    assert world.counters.handed_out == 0
    assert world.present == 0
    assert world.silences == {"timed out": 1}


@pytest.mark.parametrize("timeout", [-2, -1_000, -(2**63), -(2**64), 2**64, 1.5, float("nan"), None, True, "5", b"5"])
def test_r72_any_other_timeout_is_invalid(timeout: object) -> None:
    world = World()
    side = world.connect()
    assert side.ask(1, header(2, b"", "echo", timeout) + b"payload") == []
    assert world.bad == {"bad timeout": 1}
    assert world.present == 0


@pytest.mark.parametrize(("timeout", "on_wire"), [(float("inf"), DAY), (2.5, 2_500), (0.0001, 1), (60.0, 60_000)])
def test_jobs_of_other_dialects_go_out_with_their_run_time_and_a_day_if_they_have_none(
    timeout: float, on_wire: int
) -> None:
    """JOB to a worker carries the run time-out in ms; none is 86400000, unless its client sent -1."""

    class Stranger:
        session = type("Elsewhere", (), {"say": lambda *_: None})()

    world = World()
    side = world.connect()
    id = world.worker(side)
    world.broker.submit("echo", b"job", Stranger(), Wishes(job_timeout=timeout), world.now)
    world.turn()
    assert side.heard() == given(1, id, timeout=on_wire)


def test_many_different_timeouts_cost_no_memory_for_ever() -> None:
    world = World()
    caller = world.connect()
    for timeout in range(1, 3_000):
        world.session._wishes_for(timeout)
    assert len(world.session._wishes) <= 1_024
    caller.ask(1, job(timeout=7))
    assert world.job().wishes.job_timeout == 0.007


# -------------------------------------------------------------------- endings without a word: R73, R71


def test_r73_a_job_that_no_worker_takes_within_queue_timeout_ends_in_silence() -> None:
    world = World(queue_timeout=10)
    caller = world.connect()
    caller.ask(1, job())
    world.wait(9.99)
    assert world.present == 1
    world.wait(0.02)
    assert world.present == 0
    assert caller.heard() == []
    assert not caller.is_lost
    assert world.silences == {"timed out": 1}


def test_by_default_a_job_waits_for_a_worker_as_long_as_its_caller_is_there() -> None:
    """A bug: queue_timeout was 10 s, and this wire has no message for a time-out: callers waited for nothing."""
    world = World()
    caller = world.connect()
    caller.ask(1, job())
    world.wait(86_400)
    assert world.present == 1
    assert world.worker(world.connect())
    assert world.counters.handed_out == 1


def test_the_run_time_of_a_job_begins_when_it_is_handed_out() -> None:
    """Client JOB: the timeout starts when it is handed to a worker."""
    world = World()
    side, caller = world.connect(), world.connect()
    caller.ask(1, job(timeout=1_000))
    world.wait(9)
    id = world.worker(side)
    world.wait(0.9)
    side.ask(2, result(id))
    assert caller.heard() == answered(1)


def test_r71_when_a_job_times_out_its_worker_s_id_is_dead_at_once() -> None:
    """D11 does not apply; the late RESULT is dropped and gets DISCONNECT."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=5_000)
    world.wait(4.99)
    assert world.state(id) == "busy"
    world.wait(0.02)
    assert world.state(id) == "gone"
    assert side.heard() == []
    assert caller.heard() == []
    assert world.silences == {"timed out": 1}
    assert side.ask(2, result(id, b"too late")) == disconnected(2, id)
    assert caller.heard() == []
    assert world.counters.late_results == 1


def test_r71_a_late_result_is_never_given_to_another_caller() -> None:
    world = World()
    side, caller, other = world.connect(), world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=1_000)
    world.wait(1.5)
    other.ask(7, job(b"another"))
    assert side.ask(2, result(id, b"of the first")) == disconnected(2, id)
    assert (caller.heard(), other.heard()) == ([], [])
    new = world.worker(side, 3)
    assert world.state(new) == "busy"
    side.ask(4, result(new, b"of the other"))
    assert (caller.heard(), other.heard()) == ([], answered(7, b"of the other"))


def test_d8_with_a_second_attempt_a_job_that_timed_out_goes_to_another_worker() -> None:
    world = World(attempts=2)
    side, caller = world.connect(), world.connect()
    first = world.busy_worker(side, caller, timeout=1_000)
    second = world.worker(side, 10)
    world.wait(2.5)
    assert side.heard() == given(10, second, timeout=1_000)
    assert side.ask(2, result(first, b"late")) == disconnected(2, first)
    assert caller.heard() == []
    side.ask(11, result(second, b"in time"))
    assert caller.heard() == answered(501, b"in time")


def test_d8_after_the_last_attempt_the_job_ends_in_silence() -> None:
    world = World(attempts=2)
    side, caller = world.connect(), world.connect()
    world.busy_worker(side, caller, timeout=1_000)
    world.worker(side, 10)
    world.wait(10)
    assert caller.heard() == []
    assert world.silences == {"timed out": 1}
    assert world.counters.handed_out == 2
    assert world.workers == 0


def test_d8_by_default_a_job_has_one_attempt() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    world.worker(side, 10)
    side.ask(2, heartbeat(id))
    world.wait(2)
    assert world.counters.handed_out == 1
    assert world.silences == {"lost": 1}


def test_a_cancelled_job_is_silence_for_its_caller_and_its_worker_s_result_is_dropped() -> None:
    """Cancelled: the RESULT is dropped, and the worker is parked as idle."""
    world = World()
    side, caller, other = world.connect(), world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    world.broker.withdraw(world.job(), world.now)
    world.turn()
    assert world.silences == {"cancelled": 1}
    assert world.state(id) == "unproven"
    world.wait(100)
    assert world.state(id) == "unproven"
    other.ask(7, job(b"next"))
    assert side.heard() == []
    assert side.ask(2, result(id, b"of the cancelled")) == given(2, id, b"next")
    assert (caller.heard(), other.heard()) == ([], [])
    side.ask(3, result(id, b"of the next"))
    assert other.heard() == answered(7, b"of the next")


def test_a_worker_of_a_cancelled_job_is_not_waited_for_for_ever() -> None:
    world = World(unproven_limit=100)
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    world.broker.withdraw(world.job(), world.now)
    world.wait(101)
    assert world.state(id) == "gone"
    assert side.ask(2, result(id)) == disconnected(2, id)


def test_r73_silence_is_for_that_request_only() -> None:
    """The connection stays open, for others share it."""
    world = World(queue_timeout=10)
    side = world.connect()
    id = world.worker(side, 1)
    side.ask(2, job(service="nobody's"))
    world.wait(9)
    assert side.ask(3, job(b"mine")) == given(1, id, b"mine")
    world.wait(2)
    assert world.silences == {"timed out": 1}
    assert side.ask(4, result(id)) == answered(3)


def test_a_job_that_ended_in_silence_is_forgotten_and_the_next_resend_is_a_new_one() -> None:
    world = World(queue_timeout=10)
    side, caller = world.connect(), world.connect()
    caller.ask(1, job())
    world.wait(10.1)
    assert world.present == 0
    caller.ask(1, job())
    assert world.counters.accepted == 2
    world.worker(side)
    assert world.counters.handed_out == 1


@pytest.mark.parametrize("policy", [Policy(max_jobs=1), Policy(max_memory=3), Policy(max_services=1)])
def test_a_job_that_is_refused_at_the_door_is_silence(policy: Policy) -> None:
    """What a caller gets: refused."""
    world = World(policy=policy)
    caller = world.connect()
    caller.ask(1, job())
    assert caller.ask(2, job(service="other")) == []
    assert world.silences == {"refused": 1}
    assert world.bad == {}
    assert world.present == 1


def test_a_worker_s_result_over_max_payload_fails_the_job_and_frees_the_worker() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    assert side.ask(2, result(id, b"x" * (MAX_PAYLOAD + 1))) == []
    assert caller.heard() == []
    assert world.silences == {"failed": 1}
    assert world.state(id) == "idle"


def test_a_result_over_max_payload_of_a_worker_that_leaves_is_a_goodbye_too() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    assert side.ask(2, result(id, b"x" * (MAX_PAYLOAD + 1), True)) == disconnected(2, id)
    assert world.silences == {"failed": 1}


def test_a_result_of_max_payload_arrives_whole() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    payload = bytes(range(250)) * (MAX_PAYLOAD // 250)
    side.ask(2, result(id, payload))
    assert caller.heard() == answered(501, payload)
    assert caller.ask(501, job()) == answered(501, payload)


def test_a_job_over_max_payload_is_met_with_silence() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    assert caller.ask(1, job(b"x" * (MAX_PAYLOAD + 1))) == []
    assert world.bad == {"too large": 1}
    caller.ask(1, job(b"x" * MAX_PAYLOAD))
    assert side.heard() == given(1, id, b"x" * MAX_PAYLOAD)


def test_r80_a_length_far_over_max_payload_ends_the_connection_at_the_length() -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    side.feed((1 << 30).to_bytes(8, "big"))
    world.turn()
    assert side.is_lost
    assert world.bad == {"over max_payload": 1}
    assert world.state(id) == "detached"


# -------------------------------------------------------------------- messages nobody should send: R77, R78, R79


GARBAGE = {
    "nothing": (b"", "truncated header"),
    "not cbor": (b"\xff\xff", "not a memo01 header"),
    "a text": (b"GET / HTTP/1.1\r\n\r\n", "not a memo01 header"),
    "short array": (header(), "missing field"),
    "wrong version": (b"\x83\x66memo02\x04\x40", "wrong version"),
    "unknown type": (header(6, b""), "unknown type"),
    "type 0": (header(0, b""), "unknown type"),
    "disconnect": (header(DISCONNECT, b"x" * 16), "not for us"),
    "payload behind heartbeat": (heartbeat(b"x" * 16) + b"!", "unwanted payload"),
    "payload behind ready": (ready() + b"!", "unwanted payload"),
    "id is a text": (header(4, "x" * 16), "wrong field"),
    "heartbeat with a field": (header(4, b"x" * 16, True), "extra field"),
    "result with two flags": (header(3, b"x" * 16, True, True), "extra field"),
    "result with a flag of 1": (header(3, b"x" * 16, 1), "wrong field"),
    "ready without services": (header(1, b""), "missing field"),
    "job without timeout": (header(2, b"", "echo"), "missing field"),
    "indefinite": (b"\x9f\x66memo01\x04\x40\xff", "not a memo01 header"),
    "header too long": (header(4, b"x" * 70_000), "header too long"),
    "ready with an id": (ready(id=b"x" * 16), "unwanted id"),
    "job with an id": (job(id=b"x" * 16), "unwanted id"),
}


@pytest.mark.parametrize("name", list(GARBAGE))
def test_r77_d6_an_invalid_message_is_met_with_silence_and_counted(name: str) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    body, reason = GARBAGE[name]
    assert side.ask(2, body) == []
    assert world.counters.bad_messages == {("memodb", reason): 1}
    assert not side.is_lost
    assert world.state(id) == "busy"
    assert side.ask(3, result(id)) == []
    assert caller.heard() == answered(501)


def test_r77_twenty_in_ten_seconds_close_the_connection() -> None:
    world = World()
    side, other = world.connect(), world.connect()
    id = world.worker(side)
    for request in range(10, 29):
        side.ask(request, b"garbage")
    assert not side.is_lost
    side.ask(99, b"garbage")
    assert side.is_lost
    assert world.state(id) == "detached"
    assert not other.is_lost
    assert world.bad == {"not a memo01 header": 20}


def test_r77_nineteen_in_ten_seconds_do_not() -> None:
    world = World()
    side = world.connect()
    for _ in range(5):
        for request in range(19):
            side.ask(request, b"garbage")
        world.wait(10.1)
    assert not side.is_lost


def test_r79_up_to_eight_words_of_a_route_come_back_unchanged() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    hops = (1, 2, 3, 4, 5, 6, 0x7FFF_FFFF)
    side.ask(1, ready(), *hops)
    ((id, guest),) = world.session._guests.items()
    assert len(guest.route) == 32
    caller.ask(7, job(), 42)
    assert side.heard() == given(1, id)
    side.ask(2, result(id), *hops)
    assert caller.heard() == answered(7)
    assert [len(route) for route in side.told] == [32]
    assert [len(route) for route in caller.told] == [8]


def test_r79_more_words_are_met_with_silence() -> None:
    world = World()
    side = world.connect()
    assert side.ask(1, ready(), *range(1, 9)) == []
    assert world.bad == {"no request id": 1}
    assert world.workers == 0


def test_r79_the_same_request_id_behind_different_hops_is_another_request() -> None:
    world = World()
    side = world.connect()
    side.ask(1, ready(), 1)
    side.ask(1, ready(), 2)
    side.ask(2, job(), 1)
    side.ask(2, job(), 2)
    assert world.workers == 2
    assert world.counters.accepted == 2


# -------------------------------------------------------------------- a worker's request again: R60


def test_r60_a_parked_ready_again_on_the_same_connection_changes_nothing() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    for _ in range(5):
        world.wait(1)
        assert side.ask(1, ready()) == []
    assert world.workers == 1
    caller.ask(7, job())
    assert side.heard() == given(1, id)


def test_r60_ready_repeated_every_second_for_a_minute_is_one_worker() -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    for _ in range(60):
        world.wait(1)
        said = side.ask(1, ready())
        assert said in ([], beats(1, id), beats(1, id) * 2)
        assert world.workers == 1
    assert world.is_known(id)
    assert side.ask(2, heartbeat(id)) == []
    assert world.state(id) == "idle"


def test_r60_repeating_a_request_does_not_put_the_heartbeat_off() -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    for _ in range(9):
        world.wait(1)
        assert side.ask(1, ready()) == []
    world.wait(1)
    assert side.heard() == beats(1, id)


def repeat(world: World, side: Side, request: int, body: bytes, is_new: bool) -> tuple[Side, list[Said]]:
    """The same request once more, on the same connection or on a new one."""
    if is_new:
        side = world.again(side)
    return side, side.ask(request, body)


both = pytest.mark.parametrize("is_new", [False, True], ids=["same connection", "new connection"])


@both
def test_r60_r61_a_ready_that_was_answered_with_a_job_gets_it_again(is_new: bool) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    side, said = repeat(world, side, 1, ready(), is_new)
    assert said == given(1, id)
    assert world.state(id) == "busy"
    assert world.counters.replayed_answers == 1
    assert world.counters.handed_out == 1
    side.ask(2, result(id))
    assert caller.heard() == answered(501)


@both
def test_r60_r61_a_ready_that_was_answered_with_heartbeat_gets_it_again(is_new: bool) -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    world.wait(10)
    assert side.heard() == beats(1, id)
    side, said = repeat(world, side, 1, ready(), is_new)
    assert said == beats(1, id)
    assert world.workers == 1
    assert side.ask(2, heartbeat(id)) == []
    assert world.state(id) == "idle"


@both
def test_r60_a_parked_heartbeat_again_waits_on_at_the_new_place(is_new: bool) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.beating_worker(side)
    side, said = repeat(world, side, 2, heartbeat(id), is_new)
    assert said == []
    assert world.state(id) == "idle"
    caller.ask(7, job())
    assert side.heard() == given(2, id)


@both
def test_r60_a_heartbeat_that_was_answered_with_a_job_gets_it_again(is_new: bool) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.beating_worker(side)
    caller.ask(7, job())
    assert side.heard() == given(2, id)
    side, said = repeat(world, side, 2, heartbeat(id), is_new)
    assert said == given(2, id)
    assert world.state(id) == "busy"
    side.ask(3, result(id))
    assert caller.heard() == answered(7)


@both
def test_r60_a_heartbeat_that_was_answered_with_heartbeat_gets_it_again(is_new: bool) -> None:
    world = World()
    side = world.connect()
    id = world.beating_worker(side)
    world.wait(10)
    assert side.heard() == beats(2, id)
    side, said = repeat(world, side, 2, heartbeat(id), is_new)
    assert said == beats(2, id)
    assert side.ask(3, heartbeat(id)) == []
    assert world.state(id) == "idle"


@both
def test_r60_a_parked_result_again_is_not_booked_twice(is_new: bool) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    side.ask(2, result(id, b"once"))
    side, said = repeat(world, side, 2, result(id, b"once"), is_new)
    assert said == []
    assert caller.heard() == answered(501, b"once")
    assert world.state(id) == "idle"
    assert world.counters.late_results == 0
    caller.ask(502, job(b"next"))
    assert side.heard() == given(2, id, b"next")


@both
def test_r60_a_result_that_was_answered_with_a_job_gets_it_again_and_is_not_that_job_s_result(is_new: bool) -> None:
    """Taken for a new request it would be booked on the worker's next job: another caller's answer."""
    world = World()
    side, caller, other = world.connect(), world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    other.ask(7, job(b"second"))
    assert side.ask(2, result(id, b"first's")) == given(2, id, b"second")
    side, said = repeat(world, side, 2, result(id, b"first's"), is_new)
    assert said == given(2, id, b"second")
    assert other.heard() == []
    side.ask(3, result(id, b"second's"))
    assert other.heard() == answered(7, b"second's")
    assert caller.heard() == answered(501, b"first's")
    assert world.counters.handed_out == 2


@both
def test_r60_a_result_that_was_answered_with_heartbeat_gets_it_again(is_new: bool) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    side.ask(2, result(id))
    world.wait(10)
    assert side.heard() == beats(2, id)
    side, said = repeat(world, side, 2, result(id), is_new)
    assert said == beats(2, id)
    assert side.ask(3, heartbeat(id)) == []


@both
def test_r60_a_result_that_was_answered_with_disconnect_gets_it_again(is_new: bool) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    assert side.ask(2, result(id, b"bye", True)) == disconnected(2, id)
    side, said = repeat(world, side, 2, result(id, b"bye", True), is_new)
    assert said == disconnected(2, id)
    assert caller.heard() == answered(501, b"bye")
    assert world.counters.ended[Outcome.DONE] == 1


@both
def test_r60_a_heartbeat_that_was_answered_with_disconnect_gets_it_again(is_new: bool) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    assert side.ask(2, heartbeat(id)) == disconnected(2, id)
    side, said = repeat(world, side, 2, heartbeat(id), is_new)
    assert said == disconnected(2, id)
    assert world.counters.ended[Outcome.LOST] == 1


def test_r60_the_parked_request_moves_to_a_new_connection_while_the_old_one_still_seems_alive() -> None:
    """A half-open connection: we have not heard of its end yet."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.beating_worker(side)
    new = world.connect()
    assert new.ask(2, heartbeat(id)) == []
    world.cut(side)
    assert world.state(id) == "idle"
    caller.ask(7, job())
    assert new.heard() == given(2, id)


def test_r60_large_results_are_told_apart_and_known_again() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    caller.ask(502, job(b"second"))
    large = bytes(90_000)
    assert side.ask(2, result(id, large)) == given(2, id, b"second")
    assert side.ask(2, result(id, large)) == given(2, id, b"second")
    assert caller.heard() == answered(501, large)
    side.ask(3, result(id, large))
    assert caller.heard() == answered(502, large)


@pytest.mark.parametrize("at", [0, 4_000, 20_000, 46_000, 65_536, 70_000, 86_000, 89_999])
def test_constant_request_ids_large_results_that_differ_in_one_byte_are_different(at: int) -> None:
    """Beginning, middle and end were compared: a result that differed elsewhere was taken for the one before."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    caller.ask(502, job(b"second"))
    first = bytes(90_000)
    second = bytearray(first)
    second[at] = 1
    assert side.ask(2, result(id, first)) == given(2, id, b"second")
    assert side.ask(2, result(id, bytes(second))) == []
    assert caller.heard() == [*answered(501, first), *answered(502, bytes(second))]


def test_a_delayed_copy_of_an_earlier_result_on_an_older_connection_is_not_booked_on_the_next_job() -> None:
    """D2, R60: a result that comes late never reaches another caller, by whatever way it comes."""
    world = World()
    slow, side, caller, other = world.connect(), world.connect(), world.connect(), world.connect()
    id = world.busy_worker(slow, caller)
    assert side.ask(2, result(id, b"first's")) == []  # the first copy is still on its way over `slow`
    assert caller.heard() == answered(501, b"first's")
    other.ask(7, job(b"second"))
    assert side.heard() == given(2, id, b"second")
    side.ask(3, result(id, b"second's"))
    assert other.heard() == answered(7, b"second's")
    other.ask(8, job(b"third"))
    assert side.heard() == given(3, id, b"third")
    slow.ask(2, result(id, b"first's"))  # here it is
    assert other.heard() == []
    side.ask(4, result(id, b"third's"))
    assert other.heard() == answered(8, b"third's")


def test_r60_a_job_whose_bytes_never_left_is_not_taken_back_once_it_was_said_elsewhere() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.beating_worker(side)
    side.stream.room = 0
    caller.ask(7, job())
    new = world.connect()
    assert new.ask(2, heartbeat(id)) == given(2, id)
    world.worker(world.connect(), 50)
    world.cut(side)
    assert world.state(id) == "busy"
    assert world.counters.handed_out == 1
    new.ask(3, result(id))
    assert caller.heard() == answered(7)


def test_r60_nor_if_the_place_where_it_was_said_again_is_gone_by_now() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.beating_worker(side)
    side.stream.room = 0
    caller.ask(7, job())
    new = world.connect()
    assert new.ask(2, heartbeat(id)) == given(2, id)
    world.worker(world.connect(), 50)
    world.cut(new)
    world.cut(side)
    assert world.state(id) == "detached"
    assert world.counters.handed_out == 1
    world.connect().ask(3, result(id))
    assert caller.heard() == answered(7)


# -------------------------------------------------------------------- READY after a reconnect: R61


def test_r61_a_parked_ready_again_on_a_new_connection_is_the_same_worker() -> None:
    """A ghost would swallow a job."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    side = world.again(side)
    assert world.state(id) == "detached"
    assert side.ask(1, ready()) == []
    assert world.state(id) == "idle"
    assert world.workers == 1
    caller.ask(7, job())
    assert side.heard() == given(1, id)


def test_r61_over_several_reconnects() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    for _ in range(5):
        world.wait(1)
        side = world.again(side)
        assert side.ask(1, ready()) == []
        assert world.workers == 1
    caller.ask(7, job())
    assert side.heard() == given(1, id)


@pytest.mark.parametrize(
    ("request_id", "services", "address"),
    [(2, ("echo",), None), (1, ("echo", "more"), None), (1, ("echo",), ELSEWHERE)],
    ids=["another request id", "another message", "another address"],
)
def test_r61_what_is_not_the_very_same_is_a_new_worker(
    request_id: int, services: tuple[str, ...], address: str | None
) -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    world.cut(side)
    side = world.connect(address) if address else world.connect()
    assert world.worker(side, request_id, *services) != id
    assert world.workers == 2


def test_r61_while_the_old_connection_lives_it_is_a_new_worker() -> None:
    world = World()
    id = world.worker(world.connect())
    assert world.worker(world.connect()) != id
    assert world.workers == 2


def test_r61_once_the_first_answer_is_confirmed_a_ready_is_a_new_worker() -> None:
    world = World()
    side = world.connect()
    id = world.beating_worker(side)
    assert world.worker(side, 1) != id
    side = world.again(side)
    assert world.workers == 2
    other = world.worker(side, 99)
    assert other != id


def test_r61_two_workers_alike_in_everything_whose_connections_are_gone_both_come_back() -> None:
    """REQs that count from 1 in every process: each gets a registration, and neither leaves a ghost for ever."""
    world = World()
    sides = [world.connect(), world.connect()]
    ids = {world.worker(side) for side in sides}
    for side in sides:
        world.cut(side)
    for _ in range(2):
        world.connect().ask(1, ready())
    assert sum(world.state(id) == "idle" for id in world.session._guests) == 2
    world.wait(9)
    assert ids & set(world.session._guests)
    world.wait(30)
    assert world.workers == 0
    assert not world.session._lost_readies


def test_r61_the_end_of_one_does_not_make_its_double_unknown() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    one = world.worker(first)
    world.wait(5)
    two = world.worker(second)
    world.cut(first)
    world.cut(second)
    world.wait(15.1)
    assert (world.is_known(one), world.is_known(two)) == (False, True)
    world.connect().ask(1, ready())
    assert set(world.session._guests) == {two}


# -------------------------------------------------------------------- a caller's request again: R62, R63, R74


@both
def test_r62_a_job_that_waits_is_the_same_job(is_new: bool) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    caller.ask(7, job())
    caller, said = repeat(world, caller, 7, job(), is_new)
    assert said == []
    assert world.counters.accepted == 1
    id = world.worker(side)
    side.ask(2, result(id))
    assert caller.heard() == answered(7)


@both
def test_r62_a_job_that_runs_is_the_same_job(is_new: bool) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    caller, said = repeat(world, caller, 501, job(), is_new)
    assert said == []
    assert world.counters.accepted == 1
    side.ask(2, result(id))
    assert caller.heard() == answered(501)
    assert world.counters.handed_out == 1


@both
def test_r63_a_job_that_was_answered_gets_its_answer_again(is_new: bool) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    side.ask(2, result(id))
    assert caller.heard() == answered(501)
    for _ in range(3):
        caller, said = repeat(world, caller, 501, job(), is_new)
        assert said == answered(501)
    assert world.counters.accepted == 1
    assert world.counters.replayed_answers == 3


def test_r63_a_job_that_ended_while_its_caller_was_away_is_answered_when_it_comes_back() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=60_000)
    world.cut(caller)
    world.wait(30)
    side.ask(2, result(id))
    world.wait(30)
    assert world.connect().ask(501, job(timeout=60_000)) == answered(501)
    assert world.counters.accepted == 1


def test_r63_an_answer_is_kept_for_two_minutes() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    side.ask(2, result(id))
    caller.heard()
    world.wait(119.9)
    assert caller.ask(501, job()) == answered(501)
    world.wait(0.2)
    assert world.session._answers.bytes == 0
    assert caller.ask(501, job()) == []
    assert world.counters.accepted == 2


def test_r63_an_answer_of_a_caller_that_is_away_is_kept_no_longer() -> None:
    world = World(keep_answers=20)
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    world.cut(caller)
    side.ask(2, result(id))
    world.wait(20.1)
    assert not world.session._orphans
    assert world.connect().ask(501, job()) == []
    assert world.counters.accepted == 2


def test_r63_kept_answers_are_bounded_in_bytes_and_the_oldest_go_first() -> None:
    size = RECORD + 1_000
    world = World(max_kept_bytes=3 * size)
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    for number in range(1, 6):
        caller.hear(number, job(b"%d" % number))
        world.turn()
        side.ask(number + 1, result(id, b"%d" % number * 1_000))
    assert len(caller.heard()) == 5
    assert world.session._answers.bytes == 3 * size
    assert caller.ask(3, job(b"3")) == answered(3, b"3" * 1_000)
    assert world.counters.accepted == 5
    caller.ask(2, job(b"2"))
    assert world.counters.accepted == 6


@pytest.mark.parametrize("options", [{"max_kept_bytes": 0}, {"keep_answers": 0.0}])
def test_r63_keeping_none_is_possible(options: dict[str, float]) -> None:
    world = World(**options)
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    side.ask(2, result(id))
    assert caller.heard() == answered(501)
    world.wait(0.1)
    assert world.session._answers.bytes == 0
    caller.ask(501, job())
    assert world.counters.accepted == 2


def test_r63_answers_whose_caller_asked_for_something_else_leave_nothing_behind() -> None:
    """One that is kept long must not hold on to thousands that are not."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, payload=b"kept")
    side.ask(2, result(id))
    for number in range(3, 503):
        caller.hear(1, job(b"%d" % number))
        world.turn()
        side.ask(number, result(id, b"%d" % number))
    assert len(caller.heard()) == 501
    assert len(caller.contacts.answered) == 2
    assert len(world.session._answers._kept) < 200


@both
def test_a_job_that_ended_in_silence_and_comes_again_is_a_new_one(is_new: bool) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    world.busy_worker(side, caller, timeout=1_000)
    world.wait(2)
    caller, said = repeat(world, caller, 501, job(timeout=1_000), is_new)
    assert said == []
    assert world.counters.accepted == 2
    other = world.worker(side, 2)
    side.ask(3, result(other))
    assert caller.heard() == answered(501)


@pytest.mark.parametrize(
    ("request_id", "body", "address"),
    [(8, job(), None), (7, job(b"other"), None), (7, job(timeout=1), None), (7, job(), ELSEWHERE)],
    ids=["another request id", "another payload", "another timeout", "another address"],
)
@pytest.mark.parametrize("state", ["waiting", "running", "answered"])
def test_r62_on_a_new_connection_only_the_very_same_is_adopted(
    state: str, request_id: int, body: bytes, address: str | None
) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    caller.ask(7, job())
    if state != "waiting":
        id = world.worker(side)
        if state == "answered":
            side.ask(2, result(id))
    world.cut(caller)
    new = world.connect(address) if address else world.connect()
    assert new.ask(request_id, body) == []
    assert world.counters.accepted == 2


def test_r62_while_the_old_connection_lives_the_same_on_another_is_a_new_job() -> None:
    world = World()
    one, two = world.connect(), world.connect()
    one.ask(7, job())
    two.ask(7, job())
    assert world.counters.accepted == 2
    assert world.present == 2


def test_r62_an_adopted_job_has_its_answer_path_moved() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    new = world.again(caller)
    new.ask(501, job(), 77)
    side.ask(2, result(id))
    assert new.heard() == answered(501)
    assert [len(route) for route in new.told] == [8]


def test_r62_an_adopted_job_outlives_the_grace() -> None:
    world = World()
    caller = world.connect()
    caller.ask(7, job())
    world.wait(1)
    caller = world.again(caller)
    world.wait(4)
    caller.ask(7, job())
    world.wait(4)
    assert world.present == 1


def test_r74_a_slow_job_whose_caller_repeats_it_every_second_runs_once() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=10_000)
    for _ in range(5):
        world.wait(1)
        assert caller.ask(501, job(timeout=10_000)) == []
    side.ask(2, result(id))
    assert caller.heard() == answered(501)
    assert (world.counters.accepted, world.counters.handed_out) == (1, 1)


def test_r74_even_if_its_connection_breaks_every_time() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=10_000)
    for _ in range(5):
        world.wait(1)
        caller = world.again(caller)
        assert caller.ask(501, job(timeout=10_000)) == []
    side.ask(2, result(id))
    assert caller.heard() == answered(501)
    assert (world.counters.accepted, world.counters.handed_out) == (1, 1)


def test_a_caller_that_asks_for_something_else_under_the_same_id_has_dropped_what_it_asked_before() -> None:
    """R69 for callers: a REQ that sends a new request cancels the old one."""
    world = World()
    side, caller = world.connect(), world.connect()
    caller.ask(7, job(b"old"))
    caller.ask(7, job(b"new"))
    assert world.present == 1
    assert world.silences == {"cancelled": 1}
    id = world.worker(side)
    assert side.ask(2, result(id, b"of the new")) == []
    assert caller.heard() == answered(7, b"of the new")


def test_such_a_job_that_runs_may_end_and_its_result_reaches_nobody() -> None:
    """R19."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, payload=b"old")
    caller.ask(501, job(b"new"))
    assert side.ask(2, result(id, b"of the old")) == given(2, id, b"new")
    assert caller.heard() == []
    assert world.counters.unclaimed_results == 1
    side.ask(3, result(id, b"of the new"))
    assert caller.heard() == answered(501, b"of the new")


def test_the_answer_and_another_question_under_its_id_may_cross_in_one_turn() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, payload=b"old")
    side.hear(2, result(id, b"of the old"))
    caller.hear(501, job(b"new"))
    world.turn()
    assert caller.heard() == []
    assert side.heard() == given(2, id, b"new")


def test_constant_request_ids_work_for_different_messages() -> None:
    """Peers that know no better: the message tells one request from another."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side, 1)
    for number in range(20):
        assert caller.ask(1, job(b"%d" % number)) == []
        assert side.heard() == given(1, id, b"%d" % number)
        assert side.ask(1, result(id, b"of %d" % number)) == []
        assert caller.heard() == answered(1, b"of %d" % number)
    world.wait(10)
    assert side.heard() == beats(1, id)
    assert side.ask(1, heartbeat(id)) == []
    caller.ask(1, job(b"last"))
    assert side.heard() == given(1, id, b"last")


def test_constant_request_ids_a_worker_that_was_disconnected_may_say_ready_again_at_once() -> None:
    world = World()
    side = world.connect()
    id = world.worker(side, 1)
    assert side.ask(1, result(id)) == disconnected(1, id)
    assert world.worker(side, 1) != id


def test_constant_request_ids_two_workers_on_one_connection_do_not_make_each_other_s_ready_unknown() -> None:
    """One of them moves to another connection: the other's READY, of the same request id, is still known."""
    world = World()
    side, other = world.connect(), world.connect()
    moving = world.beating_worker(side, 1)  # its HEARTBEAT was 2, too
    staying = world.worker(side, 2)
    assert other.ask(3, heartbeat(moving)) == []
    assert side.ask(2, ready()) == []
    assert set(world.session._guests) == {moving, staying}


# -------------------------------------------------------------------- the connection is lost: R64, R65


def test_r64_workers_of_a_lost_connection_are_detached_and_given_nothing() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    ids = [world.worker(side, number) for number in (1, 2, 3)]
    world.cut(side)
    assert [world.state(id) for id in ids] == ["detached"] * 3
    caller.ask(7, job())
    assert world.counters.handed_out == 0
    assert world.remarks.count("connection lost") == 1


def test_r64_their_lease_runs_on() -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    world.wait(5)
    world.cut(side)
    world.wait(14.9)
    assert world.state(id) == "detached"
    world.wait(0.2)
    assert world.state(id) == "gone"
    assert world.connect().ask(2, heartbeat(id)) == disconnected(2, id)


def test_r64_a_worker_gets_its_heartbeat_when_it_is_back_if_that_came_due_meanwhile() -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    world.wait(9)
    world.cut(side)
    world.wait(3)
    side = world.connect()
    assert side.ask(1, ready()) == beats(1, id)


def test_r64_or_a_job_that_waits() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    world.wait(9)
    world.cut(side)
    world.wait(3)
    caller.ask(7, job())
    side = world.connect()
    assert side.ask(1, ready()) == given(1, id)


def test_r64_a_worker_may_answer_heartbeat_on_a_new_connection() -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    world.wait(10)
    assert side.heard() == beats(1, id)
    side = world.again(side)
    assert side.ask(2, heartbeat(id)) == []
    assert world.state(id) == "idle"


def test_r64_the_result_of_a_busy_worker_may_come_on_a_new_connection() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=100_000)
    side = world.again(side)
    assert world.state(id) == "detached"
    world.wait(50)
    caller.ask(7, job(b"next"))
    assert side.ask(2, result(id)) == given(2, id, b"next")
    assert caller.heard() == answered(501)


def test_r64_so_may_that_of_a_cancelled_job() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    world.cut(side)
    world.broker.withdraw(world.job(), world.now)
    world.wait(30)
    side = world.connect()
    assert side.ask(2, result(id)) == []
    assert world.state(id) == "idle"
    assert caller.heard() == []


def test_detached_longer_than_detach_timeout_is_lost() -> None:
    """D8: the job it held is lost with it."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=-1)
    world.cut(side)
    world.wait(59.9)
    assert world.state(id) == "detached"
    world.wait(0.2)
    assert world.state(id) == "gone"
    assert world.silences == {"lost": 1}
    assert world.connect().ask(2, result(id)) == disconnected(2, id)
    assert caller.heard() == []


def test_detached_longer_than_detach_timeout_with_attempts_left_goes_to_another_worker() -> None:
    world = World(attempts=2, detach_timeout=3)
    side, caller = world.connect(), world.connect()
    world.busy_worker(side, caller)
    world.cut(side)
    world.wait(2)
    side = world.connect()
    other = world.worker(side, 9)
    world.wait(1.3)
    assert side.heard() == given(9, other)


def test_the_run_time_of_a_job_goes_on_while_its_worker_is_detached() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=5_000)
    world.cut(side)
    world.wait(5.1)
    assert world.state(id) == "gone"
    assert world.silences == {"timed out": 1}
    side = world.connect()
    assert world.worker(side, 1) != id


def test_r65_a_job_that_was_written_to_a_dying_connection_is_fetched_by_the_worker_s_resend() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    caller.hear(7, job())
    world.turn()
    world.worker(world.connect(), 50)
    world.cut(side)  # nobody knows whether the worker has read it
    world.wait(2)
    assert world.counters.handed_out == 1
    side = world.connect()
    assert side.ask(1, ready()) == given(1, id)
    side.ask(2, result(id))
    assert caller.heard() == answered(7)


def test_d8_a_job_whose_bytes_never_left_goes_to_another_worker_and_no_attempt_is_spent() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    other_side = world.connect()
    other = world.worker(other_side, 50)
    side.stream.room = 10
    caller.ask(7, job())
    world.wait(1)
    assert other_side.heard() == []
    world.cut(side)
    assert other_side.heard() == given(50, other)
    assert world.job().spent == 0
    assert world.state(id) == "detached"
    other_side.ask(51, result(other))
    assert caller.heard() == answered(7)
    new = world.connect()
    assert new.ask(1, ready()) == []
    assert world.state(id) == "idle"


def test_d8_a_repeated_request_on_the_stuck_connection_itself_changes_nothing_about_that() -> None:
    """What stands behind it on one connection cannot have left before it."""
    world = World()
    side, caller = world.connect(), world.connect()
    world.worker(side)
    other_side = world.connect()
    other = world.worker(other_side, 50)
    side.stream.room = 10
    caller.ask(7, job())
    side.ask(1, ready())
    world.cut(side)
    assert other_side.heard() == given(50, other)
    assert world.job().spent == 0


def test_d8_if_there_is_no_other_worker_it_waits_for_this_one() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    side.stream.room = 10
    caller.ask(7, job())
    world.cut(side)
    assert world.present == 1
    side = world.connect()
    assert side.ask(1, ready()) == given(1, id)
    assert world.job().spent == 0


def test_d8_a_cancelled_job_whose_bytes_never_left_leaves_its_worker_free() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    side.stream.room = 10
    caller.ask(7, job())
    world.broker.withdraw(world.job(), world.now)
    world.cut(side)
    side = world.connect()
    assert side.ask(1, ready()) == []
    assert world.state(id) == "idle"


def test_a_job_that_timed_out_before_its_bytes_left_leaves_nothing_behind_when_the_connection_ends() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    side.stream.room = 10
    caller.ask(7, job(timeout=1_000))
    world.wait(2)
    assert world.state(id) == "gone"
    world.cut(side)
    assert world.session._heartbeats.armed == 0


def test_a_job_decided_in_the_turn_in_which_the_connection_ends_goes_to_another_worker() -> None:
    world = World()
    side, other_side, caller = world.connect(), world.connect(), world.connect()
    id = world.worker(side)
    other = world.worker(other_side)
    caller.hear(7, job())
    world.drop(side)
    world.turn()
    assert other_side.heard() == given(1, other)
    assert world.state(id) == "detached"
    assert world.job().spent == 0


def test_a_job_decided_in_the_turn_in_which_its_worker_moves_goes_where_it_is() -> None:
    world = World()
    side, new, caller = world.connect(), world.connect(), world.connect()
    id = world.worker(side)
    caller.hear(7, job())
    world.drop(side)
    new.hear(1, ready())
    world.turn()
    assert new.heard() == given(1, id)
    assert world.state(id) == "busy"


def test_r64_calls_that_wait_are_kept_for_orphan_grace() -> None:
    world = World()
    caller = world.connect()
    caller.ask(7, job())
    caller.ask(8, job())
    world.cut(caller)
    world.wait(4.9)
    assert world.present == 2
    world.wait(0.2)
    assert world.present == 0
    assert world.silences == {"cancelled": 2}
    assert world.session._waiting == 0
    assert world.connect().ask(7, job()) == []
    assert world.counters.accepted == 3


def test_r64_without_grace_they_end_at_once() -> None:
    world = World(orphan_grace=0.0)
    caller = world.connect()
    caller.ask(7, job())
    world.cut(caller)
    assert world.present == 0


def test_r64_a_call_that_runs_goes_on_and_its_answer_is_kept() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=60_000)
    world.cut(caller)
    world.wait(20)
    assert world.present == 1
    side.ask(2, result(id))
    assert world.counters.unclaimed_results == 0
    assert world.connect().ask(501, job(timeout=60_000)) == answered(501)


def test_r18_a_call_that_lost_its_worker_while_its_caller_was_away_too_long_is_not_started_again() -> None:
    world = World(attempts=2)
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=60_000)
    world.cut(caller)
    world.wait(20)
    assert side.ask(2, heartbeat(id)) == disconnected(2, id)
    world.worker(side, 9)
    world.wait(2)
    assert world.counters.handed_out == 1
    assert world.present == 0


def test_r64_callers_and_workers_of_one_connection_come_back_together() -> None:
    world = World()
    side = world.connect()
    id = world.busy_worker(side, side)
    side.ask(7, job(b"waits"))
    side = world.again(side)
    assert side.ask(501, job()) == []
    assert side.ask(7, job(b"waits")) == []
    assert side.ask(1, ready()) == given(1, id)
    assert side.ask(2, result(id, b"one")) == [*answered(501, b"one"), *given(2, id, b"waits")]
    assert side.ask(3, result(id, b"two")) == answered(7, b"two")
    assert (world.counters.accepted, world.counters.handed_out) == (2, 2)


def test_two_callers_alike_in_everything_whose_connections_are_gone_leave_nothing_behind() -> None:
    world = World()
    one, two = world.connect(), world.connect()
    one.ask(7, job())
    two.ask(7, job())
    world.cut(one)
    world.cut(two)
    world.connect().ask(7, job())
    world.wait(6)
    assert world.present == 1
    assert world.session._waiting == 1
    assert not world.session._orphans


def test_a_refusal_and_the_end_of_the_connection_may_cross_in_one_turn() -> None:
    world = World(policy=Policy(max_jobs=1))
    caller = world.connect()
    caller.ask(1, job())
    caller.hear(2, job(b"refused"))
    caller.hear(2, job(b"refused"))
    caller.hear(2, job(b"refused, and asked for something else"))
    world.drop(caller)
    world.turn()
    assert world.session._waiting == 1


# -------------------------------------------------------------------- bounds: R76


def test_r76_beyond_max_parked_per_peer_the_oldest_call_of_the_connection_gets_silence() -> None:
    world = World(max_parked_per_peer=3)
    side, caller, other = world.connect(), world.connect(), world.connect()
    other.ask(1, job(b"other's"))
    for number in (1, 2, 3, 4):
        caller.ask(number, job(b"%d" % number))
    assert world.silences == {"cancelled": 1}
    assert world.present == 4
    id = world.worker(side)
    for request in (2, 3, 4, 5):
        side.ask(request, result(id, b"%d" % request))
    assert [said.request for said in caller.heard()] == [2, 3, 4]
    assert [said.request for said in other.heard()] == [1]


def test_r76_a_call_whose_job_runs_gets_silence_too_and_its_job_may_end() -> None:
    world = World(max_parked_per_peer=1)
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    caller.ask(7, job(b"newer"))
    assert side.ask(2, result(id)) == given(2, id, b"newer")
    assert caller.heard() == []
    side.ask(3, result(id, b"newer's"))
    assert caller.heard() == answered(7, b"newer's")


def test_r76_where_only_workers_are_parked_a_newcomer_is_met_with_silence() -> None:
    world = World(max_parked_per_peer=2)
    side = world.connect()
    ids = [world.worker(side, number) for number in (1, 2)]
    assert side.ask(3, ready()) == []
    assert side.ask(4, job()) == []
    assert world.workers == 2
    assert world.present == 0
    assert [world.state(id) for id in ids] == ["idle"] * 2


def test_r76_a_worker_s_ready_makes_room_among_the_calls_of_its_connection() -> None:
    world = World(max_parked_per_peer=2)
    side = world.connect()
    side.ask(1, job(b"oldest"))
    side.ask(2, job(b"older"))
    (said,) = side.ask(3, ready())
    assert said.payload == b"older"


def test_r76_max_parked_counts_all_peers_and_spares_the_others() -> None:
    world = World(max_parked=3)
    one, two = world.connect(), world.connect()
    one.ask(1, job(b"1"))
    one.ask(2, job(b"2"))
    two.ask(1, job(b"3"))
    two.ask(2, job(b"4"))
    assert world.present == 3
    assert len(one.contacts.waiting) == 2
    assert len(two.contacts.waiting) == 1
    three = world.connect()
    assert three.ask(1, job(b"5")) == []
    assert world.present == 3


def test_r76_a_repeated_request_needs_no_room() -> None:
    world = World(max_parked=2)
    side = world.connect()
    side.ask(1, ready())
    side.ask(2, job(service="other"))
    for _ in range(3):
        side.ask(1, ready())
        side.ask(2, job(service="other"))
    assert (world.workers, world.present) == (1, 1)
    assert world.silences == {}


def test_r76_whoever_finds_no_room_has_done_nothing_wrong_and_is_not_thrown_out() -> None:
    """R73: silence is for that request only; others share the connection."""
    world = World(max_parked=2)
    crowd, side = world.connect(), world.connect()
    crowd.ask(1, job(service="other"))
    id = world.worker(side)
    for request in range(100, 130):
        if not side.is_lost:
            side.ask(request, job(service="other"))
    assert not side.is_lost
    assert world.state(id) == "idle"


def test_r76_there_is_room_again_when_requests_have_been_answered() -> None:
    world = World(max_parked=2)
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    for number in range(1, 10):
        caller.ask(number, job(b"%d" % number))
        side.ask(number + 1, result(id))
        assert caller.heard() == answered(number)
    assert world.silences == {}


def test_r76_hundreds_of_parked_requests_on_one_connection_end_with_it() -> None:
    world = World()
    side = world.connect()
    for number in range(100):
        side.hear(number, ready("rare"))
        side.hear(1_000 + number, job(b"%d" % number))
    world.turn()
    assert (world.workers, world.present) == (100, 100)
    world.cut(side)
    world.wait(25)
    assert (world.workers, world.present) == (0, 0)


# -------------------------------------------------------------------- slow jobs, drains


def test_slow_jobs_do_not_disturb_short_ones_and_their_workers_are_not_thrown_out() -> None:
    """The MemoDB document: slow jobs taking several minutes, while still using shorter timeouts for faster jobs."""
    world = World()
    side, caller = world.connect(), world.connect()
    slow = world.busy_worker(side, caller, 1, timeout=900_000)
    fast = world.worker(side, 2)
    for minute in range(10):
        world.wait(60 - 20)
        if not world.is_known(fast):
            fast = world.worker(side, 100 + 2 * minute)
        caller.ask(1_000 + minute, job(b"fast", timeout=1_000))
        side.ask(101 + 2 * minute, result(fast, b"fast's"))
        assert caller.heard() == answered(1_000 + minute, b"fast's")
        world.wait(20)
    assert world.state(slow) == "busy"
    side.heard()
    assert side.ask(9_999, result(slow, b"slow's")) == []
    assert caller.heard() == answered(501, b"slow's")


def test_draining_a_parked_worker_tells_it_disconnect() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.beating_worker(side)
    world.broker.drain(world.record(id), world.now)
    world.turn()
    assert side.heard() == disconnected(2, id)
    assert world.state(id) == "gone"
    caller.ask(7, job())
    assert side.heard() == []


def test_a_worker_that_an_operator_drained_stays_and_gets_nothing() -> None:
    """Told DISCONNECT, it said READY at once and got the next job."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    drained = world.record(id)
    assert drained.terms.comes_back
    world.broker.drain(drained, world.now, stays=True)
    assert side.ask(2, result(id)) == []
    caller.ask(7, job())
    for number in range(2, 6):
        world.wait(10)
        assert side.heard() == beats(number, id)
        assert side.ask(number + 1, heartbeat(id)) == []
    assert (world.record(id), world.state(id)) == (drained, "draining")


def test_draining_a_busy_worker_lets_it_finish_and_then_tells_it_disconnect() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    world.broker.drain(world.record(id), world.now)
    world.turn()
    assert side.heard() == []
    caller.ask(7, job())
    assert side.ask(2, result(id)) == disconnected(2, id)
    assert caller.heard() == answered(501)
    assert world.state(id) == "gone"


def test_draining_a_worker_that_owes_a_heartbeat_tells_it_disconnect_when_it_comes() -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    world.wait(10)
    assert side.heard() == beats(1, id)
    world.broker.drain(world.record(id), world.now)
    world.turn()
    assert side.heard() == []
    assert side.ask(2, heartbeat(id)) == disconnected(2, id)


def test_draining_a_detached_worker_tells_it_disconnect_when_it_comes_back() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    parked = world.beating_worker(side, 1)
    busy = world.worker(side, 10, "other")
    caller.ask(7, job(service="other"))
    world.cut(side)
    for id in (parked, busy):
        world.broker.drain(world.record(id), world.now)
    world.turn()
    side = world.connect()
    assert side.ask(2, heartbeat(parked)) == disconnected(2, parked)
    assert side.ask(11, result(busy)) == disconnected(11, busy)
    assert caller.heard() == answered(7)


def test_killing_a_worker_tells_it_disconnect_at_once_or_when_it_comes() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    parked = world.worker(side, 1)
    busy = world.busy_worker(side, caller, 10, service="other")
    for id in (parked, busy):
        world.broker.drain(world.record(id), world.now, at_once=True)
    world.turn()
    assert side.heard() == disconnected(1, parked)
    assert world.silences == {"lost": 1}
    assert side.ask(11, result(busy)) == disconnected(11, busy)
    assert caller.heard() == []


def test_draining_the_broker_refuses_what_waits_and_what_comes_and_lets_end_what_runs() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    caller.ask(7, job(b"waits"))
    world.broker.close(world.now)
    world.turn()
    caller.ask(8, job(b"comes"))
    assert world.silences == {"refused": 2}
    assert side.ask(2, result(id)) == []
    assert caller.heard() == answered(501)
    world.wait(10)
    assert side.heard() == beats(2, id)
    assert side.ask(3, heartbeat(id)) == []
    assert caller.ask(501, job()) == answered(501)


def test_when_the_time_for_draining_is_over_what_runs_is_lost() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    world.busy_worker(side, caller)
    world.broker.close(world.now)
    world.broker.abort(world.now)
    world.line.turn()
    assert caller.heard() == []
    assert world.silences == {"lost": 1}


def test_idle_workers_hear_disconnect_when_the_broker_stops() -> None:
    """R111."""
    world = World()
    side = world.connect()
    id = world.worker(side)
    world.broker.close(world.now)
    world.broker.abort(world.now)
    world.line.turn()
    assert side.heard() == disconnected(1, id)


def test_while_a_service_is_paused_its_workers_get_heartbeats() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    world.broker.pause("echo")
    caller.ask(7, job())
    world.wait(9.9)
    world.broker.resume("echo", world.now)
    world.turn()
    assert side.heard() == given(1, id)
