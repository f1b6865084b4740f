"""Jobs of MemoDB, to a worker and back, and connections shared by many workers and callers."""

from __future__ import annotations

import pytest

from dragoman.core.policy import Policy
from dragoman.core.states import Outcome

from .world import (
    READY,
    World,
    answered,
    beats,
    disconnected,
    given,
    header,
    heartbeat,
    job,
    ready,
    result,
)

# -------------------------------------------------------------------- the vectors: what is on the wire


def test_a_job_s_way_there_and_back_byte_for_byte() -> None:
    """Message, the vectors."""
    world = World()
    side = world.connect()
    side.ask(1, bytes.fromhex("84 66 6d656d6f3031 01 40 81 64 6563686f"))
    ((id, _),) = world.session._remotes.items()
    side.stream.taken.clear()
    side._seen = 0
    side.receive(2, bytes.fromhex("85 66 6d656d6f3031 02 40 64 6563686f 19 1388") + b"hello")
    world.runner.run_once()
    body = bytes.fromhex("85 66 6d656d6f3031 02 50") + id + bytes.fromhex("64 6563686f 19 1388") + b"hello"
    assert side.stream.taken == (4 + len(body)).to_bytes(8, "big") + b"\x80\0\0\x01" + body
    side.stream.taken.clear()
    side.receive(3, bytes.fromhex("84 66 6d656d6f3031 03 50") + id + b"\xf5" + b"bye")
    world.runner.run_once()
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
    assert world.counters.dispatched == 1
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
        side.receive(number, job(b"%d" % number))
    world.run_once()
    jobs = {said.id: said.payload for said in side.heard()}
    assert set(jobs) == set(ids)
    for request, id in enumerate(reversed(ids), 200):
        side.receive(request, result(id, b"of " + jobs[id]))
    world.run_once()
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
    assert len(world.remarked("worker rejected")) == 1
