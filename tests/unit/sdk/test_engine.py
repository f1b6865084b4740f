"""The engine of both clients with fake connections: batches, wake-ups, waiting, time-outs, several connections."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from engine_world import RESUMED, FakeJob, FakeLink, World, jobs_of, run

from dragoman.dialects.native.codec import write_error
from dragoman.dialects.native.messages import HELLO
from dragoman.dialects.sides import SubmitOptions
from dragoman.sdk.engine import Engine
from dragoman.sdk.errors import BrokerUnavailable, JobCancelled, JobFailed, JobTimeout, NotAllowed
from dragoman.sdk.submit_options import SubmitOptionsCache

NATIVE, PINGPONG = "tcp://127.0.0.1:1", "pingpong+tcp://127.0.0.1:1"


def test_jobs_that_come_at_once_cost_one_wake_up_and_one_write() -> None:
    async def main() -> None:
        world = World(NATIVE)
        jobs = jobs_of(3)
        link = await world.connected(*jobs)
        assert world.wakes == 1
        ((message,),) = link.take()
        assert message[2:] == [b"1", b"2", b"3"]
        more = jobs_of(6)[3:4]
        world.enter(*more)
        assert world.wakes == 2
        await world.run_once()
        ((message,),) = link.take()
        assert message[2:] == [b"4"]
        await world.engine.close()

    run(main)


def test_nothing_is_dialled_before_the_first_job() -> None:
    async def main() -> None:
        world = World(NATIVE)
        await world.run_once()
        assert world.links == []
        await world.engine.close()

    run(main)


def test_outcomes_and_reports_reach_their_jobs() -> None:
    async def main() -> None:
        world = World(NATIVE)
        one, two = jobs_of(2)
        link = await world.connected(one, two)
        link.receive([b"\x22" + one.job_id + b"\x00\x01", b"half"], [b"\x20" + one.job_id, b"r"])
        link.receive([b"\x21\x01" + two.job_id, b"E", b"no", b""])
        assert one.outcome == b"r"
        assert one.reports == [(b"half", False, 1)]
        assert isinstance(two.outcome, JobFailed)
        assert (one.payload, one.connection, one.is_over) == (b"", None, True)
        await world.engine.close()

    run(main)


def test_what_the_window_has_no_room_for_follows_when_all_was_heard() -> None:
    async def main() -> None:
        world = World(NATIVE)
        jobs = jobs_of(8)
        link = await world.connected(*jobs)
        assert [len(message) - 2 for (message,) in link.take()] == [4]
        link.receive(*([b"\x20" + job.job_id, b""] for job in jobs[:3]))
        assert [len(message) - 2 for (message,) in link.take()] == [3], "one SUBMIT for three that ended"
        await world.engine.close()

    run(main)


def test_a_lost_connection_is_dialled_anew_while_anybody_waits() -> None:
    async def main() -> None:
        world = World(NATIVE)
        (job,) = jobs_of(1)
        link = await world.connected(job)
        link.ended("cut")
        await world.until(lambda: len(world.links) == 2)
        await world.run_once()
        world.links[1].receive(RESUMED)
        assert [message[0][:1] for write in world.links[1].take() for message in write] == [b"\x01", b"\x14"]
        world.links[1].receive([b"\x20" + job.job_id, b"kept"])
        assert job.outcome == b"kept"
        world.links[1].ended("cut")
        await asyncio.sleep(0.3)
        assert len(world.links) == 2, "nobody waits: nobody is dialled"
        await world.engine.close()

    run(main)


def test_a_job_waits_for_a_connection_for_so_long() -> None:
    async def main() -> None:
        world = World(NATIVE, connect_timeout=0.2)
        world.problem = "nobody there"
        (job,) = jobs_of(1)
        world.enter(job)
        await world.until(lambda: job.outcome)
        assert isinstance(job.outcome, BrokerUnavailable)
        assert str(job.outcome) == "nobody there; no connection within 0.2 s (connect_timeout)"
        await world.engine.close()

    run(main)


def test_a_broker_that_comes_back_is_found_by_the_next_job() -> None:
    """A bug: rests between attempts grew longer than a job waits, and the broker that was back was not found."""

    async def main() -> None:
        world = World(NATIVE, connect_timeout=0.5)
        world.problem = "nobody there"
        for number in range(3):
            job = FakeJob(number=number)
            world.enter(job)
            await world.until(lambda job=job: job.outcome)
        world.problem = None
        last = FakeJob(number=9)
        world.enter(last)
        await world.until(lambda: world.links or last.outcome)
        assert last.outcome is None
        await world.engine.close()
        assert isinstance(last.outcome, JobCancelled)

    run(main)


def test_who_is_not_patient_is_told_at_once() -> None:
    async def main() -> None:
        world = World(NATIVE, wait_for_broker=False)
        world.problem = "nobody there"
        (job,) = jobs_of(1)
        world.enter(job)
        await world.run_once()
        assert str(job.outcome) == "nobody there"
        await world.engine.close()

    run(main)


def test_what_is_under_way_is_given_up_when_the_broker_stays_away() -> None:
    async def main() -> None:
        world = World(NATIVE, connect_timeout=0.2)
        (job,) = jobs_of(1)
        link = await world.connected(job)
        world.problem = "gone"
        link.ended("cut")
        await world.until(lambda: job.outcome)
        assert str(job.outcome) == "gone; no connection within 0.2 s (connect_timeout)"
        await world.engine.close()

    run(main)


def test_a_time_out_is_kept_here_if_the_broker_says_nothing() -> None:
    async def main() -> None:
        world = World(NATIVE)
        job = FakeJob(submit_options=SubmitOptions("echo", timeout=0.05))
        link = await world.connected(job)
        link.take()
        await world.until(lambda: job.outcome)
        assert isinstance(job.outcome, JobTimeout)
        assert str(job.outcome) == "timed out: no answer within 0.05 s"
        await world.run_once()
        assert [[b"\x12", job.job_id]] in [*link.take(), link.sent], "and the broker hears that nobody waits"
        await world.engine.close()

    run(main)


def test_a_job_that_is_withdrawn_is_not_sent_or_is_cancelled() -> None:
    async def main() -> None:
        world = World(NATIVE)
        sent, unsent = jobs_of(2)
        link = await world.connected(sent)
        link.take()
        world.enter(unsent)
        assert not world.engine.is_sent(unsent)
        assert world.engine.is_sent(sent)
        unsent.is_over = True
        world.engine.drop(sent)
        await world.run_once()
        assert link.take() == [[[b"\x12", sent.job_id]]]
        assert (sent.outcome, unsent.outcome) == (None, None)
        await world.engine.close()

    run(main)


def test_a_job_that_is_withdrawn_before_the_window_has_room_is_not_sent() -> None:
    """A bug: an outcome that came before the loop had seen the withdrawal made room, and the job was sent."""

    async def main() -> None:
        world = World(NATIVE)
        jobs = jobs_of(7)
        link = await world.connected(*jobs)
        ((message,),) = link.take()
        assert message[2:] == [b"1", b"2", b"3", b"4"]
        assert not world.engine.is_sent(jobs[4])
        world.engine.drop(jobs[4])
        link.receive(*([b"\x20" + job.job_id, b""] for job in jobs[:2]))
        ((message,),) = link.take()
        assert message[2:] == [b"6", b"7"]
        await world.engine.close()

    run(main)


def test_what_cannot_be_understood_ends_what_is_under_way_and_the_connection() -> None:
    async def main() -> None:
        world = World(NATIVE)
        (job,) = jobs_of(1)
        link = await world.connected(job)
        link.receive([b"\x20short", b"?"], [b"\x20" + job.job_id, b"late"])
        assert isinstance(job.outcome, JobFailed)
        assert "invalid response from the broker" in str(job.outcome)
        assert link.is_closed
        await world.engine.close()

    run(main)


def test_a_broker_that_does_not_welcome_us_is_unavailable_and_not_stormed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance may let it come back sooner, and more often: here it waits as long as it may."""
    monkeypatch.setattr(random, "uniform", lambda low, high: high)

    async def main() -> None:
        world = World(NATIVE, connect_timeout=0.4)
        (job,) = jobs_of(1)
        world.enter(job)

        def refuse() -> bool:
            for link in world.links:
                if not link.is_closed:
                    link.receive([b"\x03\x01", b"version", b"too new"])
            return job.outcome is not None

        await world.until(refuse)
        assert isinstance(job.outcome, BrokerUnavailable)
        assert "rejected the connection: the broker sent an error: too new" in str(job.outcome)
        assert len(world.links) < 6
        await world.engine.close()

    run(main)


def test_a_closed_engine_says_goodbye_and_ends_everything() -> None:
    async def main() -> None:
        world = World(NATIVE)
        jobs = jobs_of(6)
        link = await world.connected(*jobs)
        late = FakeJob(number=9)
        world.enter(late)
        await world.engine.close()
        await world.engine.close()
        assert link.is_closed
        assert link.take()[-1][-1][0] == b"\x06\x01"
        assert {type(job.outcome) for job in (*jobs, late)} == {JobCancelled}
        after = FakeJob(number=10)
        world.enter(after)
        await world.run_once()
        assert isinstance(after.outcome, JobCancelled)

    run(main)


# -------------------------------------------------------------------- one call at a time on each connection


def test_a_pool_grows_to_its_limit_and_each_connection_carries_one_call() -> None:
    async def main() -> None:
        world = World(PINGPONG, connections=2)
        jobs = [FakeJob(b"%d" % number, SubmitOptions("default"), number) for number in range(4)]
        world.enter(*jobs)
        await world.run_once()
        assert [link.take() for link in world.links] == [[[[b"", b"0"]]], [[[b"", b"1"]]]]
        world.links[1].receive([b"", b"one"])
        assert jobs[1].outcome == b"one"
        assert world.links[1].take() == [[[b"", b"2"]]]
        world.links[0].ended("cut")
        assert isinstance(jobs[0].outcome, BrokerUnavailable)
        assert "ended before the response: cut" in str(jobs[0].outcome)
        await world.run_once()
        assert world.links[2].take() == [[[b"", b"3"]]]
        await world.engine.close()

    run(main)


def test_a_connection_whose_call_nobody_waits_for_is_not_used_again() -> None:
    async def main() -> None:
        world = World(PINGPONG, connections=1)
        slow, next_one = (
            FakeJob(submit_options=SubmitOptions("default", timeout=0.05)),
            FakeJob(b"next", SubmitOptions("default"), 2),
        )
        world.enter(slow, next_one)
        await world.until(lambda: slow.outcome)
        assert isinstance(slow.outcome, JobTimeout)
        assert world.links[0].is_closed
        await world.until(lambda: len(world.links) == 2 and world.links[1].writes)
        world.links[1].receive([b"", b"r"])
        assert next_one.outcome == b"r"
        await world.engine.close()

    run(main)


@pytest.mark.parametrize("connections", [1, 3])
def test_jobs_wait_for_a_free_connection_longer_than_for_any(connections: int) -> None:
    """A bug that could be: what waits because all connections are busy is not what waits for a broker."""

    async def main() -> None:
        world = World(PINGPONG, connections=connections, connect_timeout=0.1)
        jobs = [FakeJob(b"%d" % number, SubmitOptions("default"), number) for number in range(connections + 1)]
        world.enter(*jobs)
        await asyncio.sleep(0.3)
        assert [job.outcome for job in jobs] == [None] * len(jobs)
        world.links[0].receive([b"", b"r"])
        assert world.links[0].take()[-1] == [[b"", b"%d" % connections]]
        await world.engine.close()

    run(main)


def test_messages_and_the_end_that_come_while_a_connection_opens_are_kept() -> None:
    """They may arrive in one read with the end of the handshake, before the code that opens the connection goes on."""

    async def main() -> None:
        world = World(NATIVE)
        forbidden = write_error(HELLO, "forbidden", "web may not call")

        async def open(*words: Any) -> FakeLink:
            link = await world._open(*words)
            words[2](forbidden)
            words[3]("the broker closed the connection")
            return link

        world.engine = Engine(
            SubmitOptionsCache(NATIVE).target, world.loop, world._wake, open=open, connect_timeout=5.0, connections=2
        )
        (job,) = jobs_of(1)
        world.enter(job)
        await world.until(lambda: job.outcome is not None)
        assert isinstance(job.outcome, NotAllowed)
        assert "web may not call" in str(job.outcome)
        assert len(world.links) == 1

    run(main)
