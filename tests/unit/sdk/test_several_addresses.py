"""Clients with several addresses: the order in which they are tried, and calls when a broker is gone."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest
from engine_world import RESUMED, WELCOME, FakeJob, World, jobs_of, run_virtually

from dragoman.carriers.carrier import Frame
from dragoman.dialects.native.codec import write_failed, write_object
from dragoman.dialects.native.messages import HEARTBEAT
from dragoman.dialects.sides import Outcome, SubmitOptions
from dragoman.sdk.candidates import Candidates, Round
from dragoman.sdk.errors import BrokerUnavailable, JobRefused, NotAllowed, OperationError, WrongDialect
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


# -------------------------------------------------------------------- brokers that stop, or are cut off


def refuses(job: FakeJob, kind: str) -> list[bytes]:
    """Return the refusal of a call or an operation."""
    if job.operation is None:
        frames = write_failed(Outcome.REFUSED, job.job_id, kind, f"{kind} now")
    else:
        frames = write_object(job.job_id[-8:], kind, f"{kind} now")
    return [bytes(each) for each in frames]


@pytest.mark.parametrize("kind", ["draining", "partitioned"])
@pytest.mark.parametrize("is_operation", [False, True])
def test_what_a_broker_turns_away_goes_to_the_next_address_at_once(
    kind: str, is_operation: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R244: a client stayed at a broker that drained, and all its calls were refused until that had gone."""

    async def main() -> None:
        world = World(THREE)
        running = FakeJob(b"runs", number=8)
        job = operation("enqueue", 7) if is_operation else FakeJob(b"x", number=7)
        link = await world.connected(running, job)
        began = world.loop.time()
        link.receive(refuses(job, kind))
        await world.run_once()
        assert world.dialled == [A, B]
        assert world.loop.time() == began
        world.links[1].receive(WELCOME)
        await world.run_once()
        _, again = sent_on(world.links[1])
        assert (again[0][:1], job.job_id[-8:] in b"".join(again[:2])) == (b"\x40" if is_operation else b"\x10", True)
        later = FakeJob(b"later", number=9)
        world.enter(later)
        await world.run_once()
        assert len(sent_on(world.links[1])) == 1, "later ones follow"
        link.receive([b"\x20" + running.job_id, b"kept"])
        await world.run_once()
        assert (running.outcome, link.is_closed, job.outcome) == (b"kept", True, None)
        assert not world.links[1].is_closed
        await world.engine.close()

    run_virtually(monkeypatch, main)


def test_no_call_is_refused_while_brokers_restart_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        world = World(THREE)
        job = FakeJob(b"x")
        link = await world.connected(job)
        for number in range(1, 8):
            link.receive(refuses(job, "draining"))
            await world.until(lambda number=number: len(world.links) > number)  # type: ignore[misc]
            link = world.links[number]
            link.receive(WELCOME)
            await world.run_once()
        assert world.dialled == [A, B, C, A, B, C, A, B]
        link.receive([b"\x20" + job.job_id, b"r"])
        assert job.outcome == b"r"
        await world.engine.close()

    run_virtually(monkeypatch, main)


@pytest.mark.parametrize("is_operation", [False, True])
def test_what_all_brokers_turn_away_for_long_is_refused(is_operation: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        world = World(TWO, connect_timeout=4.0)
        job = operation("enqueue", 1) if is_operation else FakeJob(b"x")
        link = await world.connected(job)
        began = world.loop.time()
        while job.outcome is None:
            count = len(world.links)
            link.receive(refuses(job, "partitioned"))
            await world.until(lambda count=count: len(world.links) > count or job.outcome is not None)  # type: ignore[misc]
            link = world.links[-1]
            link.receive(WELCOME)
            await world.run_once()
        assert isinstance(job.outcome, OperationError if is_operation else JobRefused)
        assert "partitioned now" in str(job.outcome)
        assert 4.0 <= world.loop.time() - began < 7.0
        assert len(world.dialled) < 14, "rounds become slower"
        await world.engine.close()

    run_virtually(monkeypatch, main)


def test_a_client_with_one_address_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        world = World(f"tcp://{A}")
        job, asked = FakeJob(b"x"), operation("enqueue", 2)
        link = await world.connected(job, asked)
        link.receive(refuses(job, "draining"), refuses(asked, "partitioned"))
        assert isinstance(job.outcome, JobRefused)
        assert isinstance(asked.outcome, OperationError)
        assert world.dialled == [A]
        await world.engine.close()

    run_virtually(monkeypatch, main)


def test_an_operation_without_an_answer_is_asked_at_the_next_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that was cut off from its cluster held requests for half a minute. Calls that were sent stay there: a
    worker may run them. What was not sent goes along."""

    async def main() -> None:
        world = World(TWO)
        calls = [FakeJob(b"%d" % number, number=number) for number in range(20, 26)]  # two more than the window
        asked, waits = operation("enqueue", 1), operation("result", 2)
        waits.operation = OperationCall("result", b"{}", wait=30.0)
        link = await world.connected(*calls[:3], asked)
        began = world.loop.time()
        await world.until(lambda: len(world.links) == 2)
        assert 5.0 <= world.loop.time() - began < 5.5
        world.links[1].receive(WELCOME)
        world.enter(*calls[3:], waits)
        await world.run_once()
        sent = sent_on(world.links[1])
        assert [message[0][:1] for message in sent] == [b"\x01", b"\x40", b"\x10", b"\x40"]
        link.receive([b"\x20" + calls[0].job_id, b"r"])
        assert calls[0].outcome == b"r"
        assert calls[1].outcome is None
        world.links[1].receive([b"\x41" + asked.job_id[-8:], b"{}", b""])
        assert asked.outcome == (b"{}", b"")
        link.receive([b"\x41" + asked.job_id[-8:], b"{}", b""])  # the first answer after all
        for _ in range(17):
            await asyncio.sleep(2.0)
            for each in world.links:
                each.receive([bytes((HEARTBEAT,))])
        assert world.dialled == [A, B], "a request that waits has more time"
        await world.until(lambda: len(world.links) == 3)
        assert world.dialled == [A, B, A]
        await world.engine.close()

    run_virtually(monkeypatch, main)


def test_calls_at_a_broker_that_was_left_end_when_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        world = World(TWO, connect_timeout=4.0)
        running, job = FakeJob(b"runs", number=8), FakeJob(b"x", number=7)
        link = await world.connected(running, job)
        link.receive(refuses(job, "draining"))
        await world.until(lambda: len(world.links) == 2)
        world.links[1].receive(WELCOME)
        world.gone = {A: refused(A)}
        link.ended("cut")
        await world.until(lambda: running.outcome is not None)
        assert isinstance(running.outcome, BrokerUnavailable)
        assert set(world.dialled[2:]) == {A}, "another broker does not know the call"
        world.links[1].receive([b"\x20" + job.job_id, b"r"])
        assert job.outcome == b"r"
        await world.engine.close()

    run_virtually(monkeypatch, main)


def test_a_job_that_is_turned_away_may_be_cancelled_and_the_client_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        world = World(TWO)
        dropped, closed = FakeJob(b"x", number=1), FakeJob(b"y", number=2)
        link = await world.connected(dropped, closed)
        for _ in range(2):
            link.receive(refuses(dropped, "draining"), refuses(closed, "draining"))
            await world.run_once()
            link = world.links[-1]
            link.receive(WELCOME)
            await world.run_once()
        world.engine.drop(dropped)
        await world.run_once()
        assert dropped.is_over
        await world.engine.close()
        assert closed.outcome is not None
        assert dropped.outcome is None

    run_virtually(monkeypatch, main)


def test_an_http_client_goes_to_the_next_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        world = World(f"http://{A},{B}", connections=2)
        job = FakeJob(b"x", SubmitOptions("echo"), 1)
        world.enter(job)
        await world.run_once()
        body = b'{"type":"urn:dragoman:draining","title":"Draining","status":503,"detail":"stops"}'
        world.links[0].receive([b"503", b"content-type:application/problem+json\nconnection:close", body])
        await world.run_once()
        assert world.dialled == [A, B]
        assert job.outcome is None
        assert world.links[0].is_closed
        assert len(sent_on(world.links[1])) == 1
        await world.engine.close()

    run_virtually(monkeypatch, main)
