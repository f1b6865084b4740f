"""Jobs of Majordomo clients, results and their parts."""

from __future__ import annotations

from itertools import product

import pytest

from case_tables import check_every_row
from dragoman.core.states import Outcome

from .world import ECHO, FIELD, MAX_PAYLOAD, RFC7, RFC18, SPEECHES, Speech, World, every

# -------------------------------------------------------------------- jobs there, results back


@pytest.mark.parametrize("clients", SPEECHES, ids=str)
@pytest.mark.parametrize("workers", SPEECHES, ids=str)
def test_a_client_of_every_edition_is_served_by_a_worker_of_every_edition(workers: Speech, clients: Speech) -> None:
    world = World()
    worker, client = world.busy(workers, clients)
    assert worker.reply(b"result") == []
    assert client.done(b"result")
    assert world.state(worker) == "idle"
    assert world.ended == {"done": 1}


@pytest.mark.parametrize("frames", [[b"one", b"two"], [b"", b"x", b""], [b""], [b"y" * 3000, b"z" * 3000]])
def test_frames_of_a_body_are_kept_between_majordomos_peers(frames: list[bytes]) -> None:
    def check(workers: Speech, clients: Speech) -> None:
        world = World()
        worker = world.worker(workers)
        client = world.client(*frames, speech=clients)
        assert worker.words() == [b"|".join(frames).decode()]
        worker.reply(*frames[::-1])
        assert client.done(*frames[::-1])

    check_every_row(check, product(SPEECHES, repeat=2))


@every
def test_every_request_has_a_client_frame_of_its_own(speech: Speech) -> None:
    """Frames: correlation for free (D2)."""
    world = World()
    worker = world.worker(speech)
    seen = set()
    for _ in range(5):
        client = world.client()
        assert worker.words() == ["job"]
        seen.add(worker.client)
        worker.reply()
        assert client.done(b"result")
    assert len(seen) == 5


@every
def test_a_worker_that_sends_no_empty_frame_ends_its_job(speech: Speech) -> None:
    """The Guide's worker in PHP sends none. Its reply was malformed: it got DISCONNECT, and each job was lost."""
    world = World()
    worker, client = world.busy(speech)
    assert worker.command(speech.reply, worker.client, b"result") == []
    assert client.done(b"result")
    assert world.state(worker) == "idle"
    assert world.bad == {}


@every
def test_a_reply_without_the_empty_frame_needs_the_token_of_its_job(speech: Speech) -> None:
    world = World()
    worker, client = world.busy(speech)
    assert worker.command(speech.reply, b"no token", b"result") == ["DISCONNECT"]
    assert client.told() == []
    assert world.bad == {"unexpected command": 1}


def test_a_worker_that_keeps_the_client_frame_as_a_c_string_ends_all_its_jobs() -> None:
    """A C string ends at the first zero byte, as in the Guide's worker in C++. One frame of sixteen random bytes in
    sixteen has one: these jobs were lost, and nothing told why."""
    world = World()
    worker = world.worker()
    for number in range(100):
        client = world.client(b"%d" % number)
        assert worker.words() == [str(number)]
        assert worker.reply(client=worker.client.split(b"\0")[0]) == []
        assert client.done(b"result")


def test_jobs_wait_for_a_worker_and_go_out_in_the_order_they_came() -> None:
    world = World()
    clients = [world.client(b"%d" % number) for number in range(3)]
    worker = world.worker()
    given = worker.words()
    for number, client in enumerate(clients):
        assert given == [str(number)]
        given = worker.reply(b"did %d" % number)
        assert client.done(b"did %d" % number)


def test_a_request_for_a_service_without_workers_waits_for_queue_timeout_and_ends_in_silence() -> None:
    world = World(queue_timeout=4)
    client = world.client(service=b"nobody")
    world.wait(4)
    assert client.told() == []
    assert world.ended == {"timed out": 1}
    assert world.counters.unreported_outcomes == {Outcome.TIMED_OUT: 1}


def test_by_default_a_request_waits_for_a_worker_as_long_as_its_client_is_there() -> None:
    """A bug: queue_timeout was 10 s, and of 100,000 requests sent at once 87,221 came to nothing without a word."""
    world = World()
    client = world.client(b"patient", service=b"late")
    world.wait(3_600)
    worker = world.worker(service=b"late")
    assert worker.words() == ["patient"]
    worker.reply(b"at last")
    assert client.told() == [RFC7.answer(b"late", b"at last")]


def test_services_are_kept_apart() -> None:
    world = World()
    one, two = world.worker(service=b"one"), world.worker(RFC18, service=b"two")
    client = world.connect()
    client.call(b"for two", service=b"two")
    client.call(b"for one", service=b"one")
    assert (one.words(), two.words()) == (["for one"], ["for two"])
    one.reply(b"1")
    two.reply(b"2")
    assert client.told() == [RFC7.answer(b"one", b"1"), RFC7.answer(b"two", b"2")]


def test_a_client_may_have_many_requests_under_way() -> None:
    world = World()
    workers = [world.worker() for _ in range(3)]
    client = world.connect(FIELD)
    for number in range(3):
        client.call(b"%d" % number)
    for number, worker in reversed(list(enumerate(workers))):
        assert worker.words() == [str(number)]
        worker.reply(b"did %d" % number)
    assert client.told() == [FIELD.answer(ECHO, b"did %d" % number) for number in (2, 1, 0)]


# -------------------------------------------------------------------- parts


@pytest.mark.parametrize("speech", SPEECHES[1:], ids=str)
def test_parts_go_ahead_of_the_rest(speech: Speech) -> None:
    world = World()
    worker, client = world.busy(RFC18, speech)
    worker.reply(b"one", part=True)
    assert client.told() == [speech.answer(ECHO, b"one", part=True)]
    worker.reply(b"two", b"frames", part=True)
    assert client.told() == [speech.answer(ECHO, b"two", b"frames", part=True)]
    assert world.state(worker) == "busy"
    worker.reply(b"rest")
    assert client.done(b"rest")
    assert world.counters.dropped_parts == 0


def test_a_client_without_a_word_for_parts_gets_them_in_front_of_the_rest() -> None:
    """They were dropped: it took the last part of its result for all of it."""
    world = World()
    worker, client = world.busy(RFC18, RFC7)
    worker.reply(b"one", part=True)
    worker.reply(b"two", part=True)
    assert client.told() == []
    worker.reply(b"rest")
    assert client.done(b"onetworest")
    assert world.counters.dropped_parts == 0


def test_a_result_whose_parts_are_too_large_together_fails() -> None:
    world = World()
    worker, client = world.busy(RFC18, RFC7)
    worker.reply(b"x" * (MAX_PAYLOAD // 2), part=True)
    worker.reply(b"x" * (MAX_PAYLOAD // 2 + 1))
    assert client.told() == []
    assert world.ended == {"failed": 1}


def test_a_part_of_a_job_that_is_over_is_dropped() -> None:
    world = World(job_timeout=5)
    worker, client = world.busy(RFC18, RFC18)
    world.wait(5)
    worker.words()
    assert worker.reply(b"one", part=True) == []
    assert client.told() == []
    assert (world.counters.dropped_parts, world.counters.late_results) == (1, 0)
    assert world.state(worker) == "stuck"
