"""Workers that take their running jobs to another broker, on both sides (R119)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.core.handover import Arrivals, MoveWorker
from dragoman.core.model import Caller, Service, Token, Worker
from dragoman.core.recipients import Effect, Recipient
from dragoman.dialects.native.codec import write_move, write_recall, write_welcome
from dragoman.dialects.native.messages import Role, Welcome
from owners import LOCAL_OWNER

from .test_worker_side import A, B, C, Side
from .world import World, failed, hello, result

RETURNS = {"services": ["echo"], "returns": True, "moves": True}


# -------------------------------------------------------------------- the worker


def moving(concurrency: int = 2, prefetch: int = 0) -> tuple[Side, list[str]]:
    """Return a worker side that is connected, and the reasons for which it goes elsewhere."""
    side = Side(concurrency, prefetch, is_open=False)
    departures: list[str] = []
    side.keep_jobs(departures.append)
    reopen(side)
    return side, departures


def reopen(side: Side, *accepted: bytes) -> dict[str, Any]:
    """Connect to a broker that lets these jobs go on. Returns the JSON of HELLO."""
    side.opened(0.0)
    ((_, about),) = side.port.take()
    side.receive(write_welcome(Welcome(2.0, 10.0, 1000, running=accepted), Role.WORKER), 0.0)
    told: dict[str, Any] = json.loads(bytes(about))
    return told


def test_a_worker_goes_when_it_is_asked_and_names_its_jobs_to_the_next_broker() -> None:
    side, departures = moving()
    side.give(A, B)
    side.finished(A, b"one", 1.0)
    side.receive(write_move("the broker stops"), 1.0)
    assert (side.port.take(), departures) == ([[b"\x20" + A, b"one"]], ["the broker stops"])
    assert side.port.events == [], "nothing is cancelled"
    side.lost()
    assert reopen(side, B)["running"] == {"echo": B.hex()}
    side.finished(B, b"two", 2.0)
    side.flush(2.0)
    assert side.port.take() == [[b"\x20" + B, b"two"]]
    assert not side.is_busy


def test_what_ends_on_the_way_is_named_and_sent_to_the_next_broker() -> None:
    side, _ = moving()
    side.give(A, B)
    side.receive(write_move(""), 1.0)
    side.finished(A, b"one", 1.0)
    assert side.port.take() == [], "the old connection is not used any more"
    side.lost()
    side.opened(0.0)
    ((_, about),) = side.port.take()
    assert json.loads(bytes(about))["running"] == {"echo": A.hex() + B.hex()}
    side.receive(write_welcome(Welcome(2.0, 10.0, 1000, running=(A, B)), Role.WORKER), 0.0)
    assert side.port.take() == [[b"\x20" + A, b"one"]]


def test_a_job_that_the_next_broker_knows_takes_a_slot_and_can_be_recalled() -> None:
    side, _ = moving(concurrency=1, prefetch=1)
    side.give(A)
    side.lost()
    reopen(side, A)
    side.give(B)
    assert [job_ref for job_ref, _, _ in side.port.given] == [A]
    side.receive(write_recall(A, "cancelled"), 1.0)
    assert side.port.events == [("recall", A)]
    side.returned(A, 1.0)
    assert side.port.take() == [[b"\x32", A]]
    assert [job_ref for job_ref, _, _ in side.port.given] == [A, B]


def test_a_job_that_the_next_broker_does_not_know_goes_on_as_before() -> None:
    side, _ = moving(concurrency=1)
    side.give(A)
    side.lost()
    reopen(side)
    side.finished(A, b"one", 1.0)
    assert side.port.take() == [[b"\x20" + A, b"one"]]


def test_jobs_that_were_not_started_are_returned_before_it_goes() -> None:
    side, departures = moving(concurrency=1, prefetch=1)
    side.give(A, B)
    side.receive(write_move(""), 1.0)
    assert (side.port.take(), departures) == ([[b"\x32", B]], ["the broker stops"])
    assert reopen(side)["running"] == {"echo": A.hex()}


def test_a_job_that_has_sent_parts_ends_before_its_worker_goes() -> None:
    """The next broker cannot join its result with the parts."""
    side, departures = moving()
    side.give(A, B)
    side.report(A, b"part", 1.0, is_part=True)
    side.receive(write_move(""), 1.0)
    assert departures == []
    assert side.tick(1.0) < 1.1
    side.finished(A, b"one", 1.0)
    side.tick(1.1)
    assert departures == ["the broker stops"]
    assert [bytes(message[0][:1]) for message in side.port.take()] == [b"\x23", b"\x20"]
    assert side.port.events == []


def test_a_worker_with_one_address_stays() -> None:
    side = Side()
    side.give(A)
    side.receive(write_move(""), 1.0)
    side.finished(A, b"one", 1.0)
    side.flush(1.0)
    assert side.port.take() == [[b"\x20" + A, b"one"]]


def test_more_jobs_than_fit_into_hello_are_not_named() -> None:
    side = Side(1024, is_open=False)
    side.keep_jobs(lambda reason: None)
    reopen(side)
    services = 60
    for number in range(services):
        side._side._kept[number.to_bytes(16, "big")] = f"{number:04}" + "x" * 1100
    assert "running" not in reopen(side)


# -------------------------------------------------------------------- the broker


class Elsewhere(Arrivals):
    """Takes attempts of other brokers."""

    def __init__(self, world: World, recipient: Recipient) -> None:
        self._world = world
        self._recipient = recipient

    def take(self, worker: Worker, token: Token, service: Service, now: float) -> bool:
        if token == C:
            return False
        self._world.broker.handover.arrive(worker, token, service, Caller(self._recipient, LOCAL_OWNER), now)
        return True


class Outcomes(Recipient):
    def __init__(self) -> None:
        self.effects: list[Effect] = []

    def execute(self, effect: Effect, now: float) -> None:
        self.effects.append(effect)


def with_arrivals() -> tuple[World, Outcomes]:
    world, outcomes = World(), Outcomes()
    world.broker.handover.arrivals = Elsewhere(world, outcomes)
    return world, outcomes


def bring(world: World, *tokens: bytes, capacity: int = 2, service: str = "echo") -> tuple[Any, list[bytes]]:
    """Connect a worker with running jobs. Returns it, and the tokens in WELCOME."""
    end = world.connect()
    about = {**RETURNS, "capacity": capacity, "running": {service: b"".join(tokens).hex()}}
    ((word, _, told),) = end.say(*hello(2, about))
    assert word == "WELCOME"
    data = bytes.fromhex(told.get("running", ""))
    return end, [data[at : at + 16] for at in range(0, len(data), 16)]


def test_a_job_that_a_worker_brings_runs_there_and_its_outcome_goes_to_its_broker() -> None:
    world, outcomes = with_arrivals()
    end, accepted = bring(world, A, B, C, capacity=3)
    assert accepted == [A, B]
    end.receive(result((A, b"one")))
    end.receive(failed(B))
    world.run_once()
    told = [(each.outcome.value, bytes(each.result)) for each in outcomes.effects]  # type: ignore[attr-defined]
    assert told == [("done", b"one"), ("failed", b"")]
    assert world.present == 0


def test_a_worker_that_comes_with_running_jobs_gets_as_many_jobs_as_it_has_free_slots() -> None:
    world, _ = with_arrivals()
    client = world.client()
    world.submit(client, b"1", flags=1)
    world.submit(client, b"2", flags=1)
    end, accepted = bring(world, A, B, capacity=2)
    assert accepted == [A, B]
    assert end.told() == []
    end.receive(result((A, b"one")))
    world.run_once()
    assert [said[0] for said in end.told()] == ["JOB"]


def test_no_more_jobs_are_taken_than_the_worker_has_slots() -> None:
    world, _ = with_arrivals()
    _, accepted = bring(world, A, B, capacity=1)
    assert accepted == [A]


def test_a_job_of_a_service_that_the_worker_does_not_offer_is_not_taken() -> None:
    world, _ = with_arrivals()
    _, accepted = bring(world, A, service="other")
    assert accepted == []


def test_without_a_cluster_a_job_that_is_not_known_is_not_taken() -> None:
    world = World()
    end, accepted = bring(world, A)
    assert accepted == []
    end.receive(result((A, b"late")))
    world.run_once()
    assert world.counters.late_results == 1


@pytest.mark.parametrize("running", [1, [], {"echo": 1}, {"echo": "xx"}, {"echo": "ab"}])
def test_jobs_that_cannot_be_read_are_an_error(running: object) -> None:
    world = World()
    end = world.connect()
    assert end.say(*hello(2, {**RETURNS, "running": running})) == [("ERROR", "HELLO", "malformed")]


def test_a_worker_is_asked_to_go_by_move() -> None:
    world = World()
    end = world.connect()
    end.say(*hello(2, RETURNS))
    (worker,) = world.broker.worker_registry.workers.values()
    assert worker.profile.can_move
    world.broker.effects.append(MoveWorker(worker))
    world.run_once()
    assert [bytes(frame) for frame in end.inbox.pop(0)] == [b"\x33", b"the broker stops"]


@pytest.mark.parametrize("about", [{"returns": True}, {"moves": True}, {}])
def test_a_worker_that_does_not_return_cannot_move(about: dict[str, bool]) -> None:
    world = World()
    world.connect().say(*hello(2, {"services": ["echo"], **about}))
    (worker,) = world.broker.worker_registry.workers.values()
    assert not worker.profile.can_move
