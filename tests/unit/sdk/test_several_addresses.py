"""Clients with several addresses: the order in which they are tried, and calls when a broker is gone."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest
from engine_world import RESUMED, WELCOME, FakeJob, World, jobs_of, run_virtually

from dragoman.carriers.carrier import Frame
from dragoman.dialects.sides import SubmitOptions
from dragoman.sdk.candidates import Candidates, Round
from dragoman.sdk.errors import BrokerUnavailable, NotAllowed, WrongDialect
from dragoman.sdk.operation import OperationCall
from dragoman.sdk.targets import caller_target

A, B, C = "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"
TWO, THREE = f"tcp://{A},{B}", f"tcp://{A},{B},{C}"
FORBIDDEN = [b"\x03\x01", b"forbidden", b"web may not call"]


@pytest.fixture(autouse=True)
def in_given_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "shuffle", lambda given: None)


def refused(place: str) -> BrokerUnavailable:
    return BrokerUnavailable(f"no broker answers at {place}")


def operation(text: str, number: int) -> FakeJob:
    asked = FakeJob(b"", SubmitOptions(""), number)
    asked.operation = OperationCall(text, b"{}")
    return asked


def sent_on(link: Any) -> list[list[Frame]]:
    return [message for write in link.take() for message in write]


# -------------------------------------------------------------------- the order


def test_a_round_has_each_address_once_and_stays_where_a_broker_answers() -> None:
    candidates = Candidates(caller_target(THREE), "client")
    first = Round(candidates)
    assert str(first.current.target.place) == A
    assert first.failed(refused(A)) is None
    assert str(first.current.target.place) == B
    first.succeeded()
    assert str(Round(candidates).current.target.place) == B, "new connections of the same client begin there"
    assert first.failed(refused(B)) is None
    assert str(first.current.target.place) == C
    assert first.failed(refused(C)) is None
    assert str(first.current.target.place) == A
    problem = first.failed(refused(A))
    assert str(problem) == f"{refused(B)}; {refused(C)}; {refused(A)}"
    assert str(first.current.target.place) == B


def test_others_than_the_first_are_tried_in_random_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """So clients of a lost broker spread over the others."""
    monkeypatch.setattr(random, "shuffle", lambda given: given.reverse())
    candidates = Candidates(caller_target(THREE), "client")
    assert [str(each.target.place) for each in candidates.in_order()] == [A, C, B]


def test_an_error_of_all_addresses_is_a_refusal_only_if_all_refuse() -> None:
    rows: list[tuple[BrokerUnavailable, BrokerUnavailable, type[BrokerUnavailable]]] = [
        (NotAllowed("a"), NotAllowed("b"), NotAllowed),
        (WrongDialect("a"), WrongDialect("b"), WrongDialect),
        (NotAllowed("a"), WrongDialect("b"), BrokerUnavailable),
        (refused(A), NotAllowed("b"), BrokerUnavailable),
    ]
    for one, two, kind in rows:
        each = Round(Candidates(caller_target(TWO), "client"))
        assert each.failed(one) is None
        problem = each.failed(two)
        assert type(problem) is kind
        assert str(problem) == f"{one}; {two}"


def test_one_attempt_leaves_time_for_the_others() -> None:
    limits = [Candidates(caller_target(url), "client").dial_limit(5.0, 10.0) for url in (f"tcp://{A}", TWO, THREE)]
    assert limits == [5.0, pytest.approx(10 / 3), 2.5]
    assert Candidates(caller_target(THREE), "client").dial_limit(5.0, 0.5) == 1.0


# -------------------------------------------------------------------- clients


def test_a_client_connects_to_the_first_that_answers_without_a_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        world = World(THREE)
        world.gone = {A: refused(A), B: refused(B)}
        began = world.loop.time()
        world.enter(*jobs_of(1))
        for _ in range(4):
            await world.run_once()
        assert world.dialled == [A, B, C]
        assert world.loop.time() == began
        await world.engine.close()

    run_virtually(monkeypatch, main)


def test_a_lost_connection_is_dialled_at_the_same_broker_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """There the session goes on; the other broker does not know it."""

    async def main() -> None:
        world = World(TWO)
        (job,) = jobs_of(1)
        link = await world.connected(job)
        link.ended("cut")
        await world.until(lambda: len(world.links) == 2)
        await world.run_once()
        assert world.dialled == [A, A]
        world.links[1].receive(RESUMED, [b"\x20" + job.job_id, b"kept"])
        assert job.outcome == b"kept"
        await world.engine.close()

    run_virtually(monkeypatch, main)


def test_calls_in_flight_end_and_operations_continue_at_the_next_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that was sent may have run, and is never submitted twice. One that was not sent goes to the next broker.
    An operation is asked again."""

    async def main() -> None:
        world = World(TWO)
        sent = jobs_of(1)[0]
        link = await world.connected(sent)
        asked = operation("result", 7)
        world.enter(asked)
        await world.run_once()
        assert [message[0][:1] for message in sent_on(link)] == [b"\x10", b"\x40"]
        world.gone = {A: refused(A)}
        link.ended("cut")
        unsent = FakeJob(b"later", number=9)
        world.enter(unsent)
        await world.until(lambda: len(world.links) == 2)
        await world.run_once()
        assert world.dialled == [A, A, B]
        world.links[1].receive(WELCOME)
        assert isinstance(sent.outcome, BrokerUnavailable)
        assert "the job may have run" in str(sent.outcome)
        hello, submit, ask = sent_on(world.links[1])
        assert json.loads(bytes(hello[1]))["session"], "the broker may know the session"
        assert submit[1:] == [unsent.job_id, b"later"]
        assert ask[0][:1] == b"\x40"
        await world.engine.close()

    run_virtually(monkeypatch, main)


def test_a_memodb_call_is_not_repeated_at_another_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its wire repeats a request on a new connection. Another broker would run it a second time."""

    async def main() -> None:
        world = World(f"memodb+tcp://{A},{B}")
        job = FakeJob(b"x", SubmitOptions("echo"))
        world.enter(job)
        await world.run_once()
        assert len(sent_on(world.links[0])) == 1
        world.gone = {A: refused(A)}
        world.links[0].ended("cut")
        await world.until(lambda: len(world.links) == 2)
        await world.run_once()
        assert isinstance(job.outcome, BrokerUnavailable)
        assert "the job may have run" in str(job.outcome)
        assert sent_on(world.links[1]) == []
        await world.engine.close()

    run_virtually(monkeypatch, main)


def test_all_addresses_are_tried_again_with_growing_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: 1.0)

    async def main() -> None:
        world = World(TWO, connect_timeout=4.0)
        world.gone = {A: refused(A), B: refused(B)}
        (job,) = jobs_of(1)
        began = world.loop.time()
        world.enter(job)
        await world.until(lambda: len(world.dialled) == 8)
        assert world.dialled == [A, B] * 4
        assert world.loop.time() - began == pytest.approx(0.1 + 0.2 + 0.4, abs=0.02)
        await world.until(lambda: job.outcome)
        problem = f"{refused(A)}; {refused(B)}; no connection within 4 s (connect_timeout)"
        assert str(job.outcome) == problem
        assert world.loop.time() - began == pytest.approx(4.0, abs=0.02)
        await world.engine.close()

    run_virtually(monkeypatch, main)


def test_a_client_that_does_not_wait_for_a_broker_tries_all_addresses_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        world = World(TWO, wait_for_broker=False)
        world.gone = {A: refused(A), B: refused(B)}
        (job,) = jobs_of(1)
        world.enter(job)
        await world.until(lambda: job.outcome)
        assert world.dialled == [A, B]
        assert str(job.outcome) == f"{refused(A)}; {refused(B)}"
        await world.engine.close()

    run_virtually(monkeypatch, main)


@pytest.mark.parametrize("is_forbidden", [True, False])
def test_a_broker_that_does_not_admit_the_client_is_left_for_the_next(
    is_forbidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an error before WELCOME, or by the end of the connection."""

    async def main() -> None:
        world = World(TWO)
        (job,) = jobs_of(1)
        world.enter(job)
        await world.run_once()
        if is_forbidden:
            world.links[0].receive(FORBIDDEN)
        else:
            world.links[0].ended("closed")
        await world.run_once()
        assert world.dialled == [A, B]
        assert job.outcome is None
        world.links[1].receive(WELCOME)
        assert [message[0][:1] for message in sent_on(world.links[1])] == [b"\x01", b"\x10"]
        await world.engine.close()

    run_virtually(monkeypatch, main)


def test_if_no_broker_admits_the_client_its_jobs_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        world = World(TWO)
        (job,) = jobs_of(1)
        world.enter(job)
        for number in range(2):
            await world.run_once()
            world.links[number].receive(FORBIDDEN)
        await world.run_once()
        assert isinstance(job.outcome, NotAllowed)
        assert str(job.outcome).count("web may not call") == 2
        await world.engine.close()

    run_virtually(monkeypatch, main)


def test_connections_of_one_call_each_go_where_a_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second connection does not dial the address that did not answer."""

    async def main() -> None:
        world = World(f"pingpong+tcp://{A},{B}", connections=2)
        world.gone = {A: refused(A)}
        jobs = [FakeJob(b"%d" % number, SubmitOptions("default"), number) for number in range(2)]
        world.enter(jobs[0])
        await world.run_once()
        world.enter(jobs[1])
        await world.run_once()
        assert world.dialled == [A, B, B]
        world.links[0].ended("cut")
        assert "ended before the response: cut" in str(jobs[0].outcome)
        await world.engine.close()

    run_virtually(monkeypatch, main)


def test_the_end_of_a_connection_that_has_just_opened_starts_one_dial(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end may come in one read with the greeting; the task that opened the connection forgot the next dial."""

    async def main() -> None:
        world = World(TWO)
        open = world.engine._open

        async def close_at_once(*words: Any) -> Any:
            link = await open(*words)
            if len(world.links) == 1:
                words[3]("closed")
            else:
                await asyncio.sleep(1)
            return link

        for connection in world.engine._connections:
            connection._open = close_at_once
        job, another = jobs_of(2)
        world.enter(job)
        await world.run_once()
        world.enter(another)
        await asyncio.sleep(2)
        assert world.dialled == [A, B]
        world.links[1].receive(WELCOME)
        world.links[1].receive([b"\x20" + job.job_id, b"r"])
        assert job.outcome == b"r"
        await world.engine.close()

    run_virtually(monkeypatch, main)
