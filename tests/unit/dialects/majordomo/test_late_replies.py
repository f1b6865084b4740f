"""Replies that come late, twice, or with a token of another job."""

from __future__ import annotations

import pytest

from dragoman.dialects.majordomo import broker_side as module

from .world import Speech, World, every


def test_d2_d11_a_reply_after_the_jobs_time_is_late_and_proves_its_worker() -> None:
    world = World(job_timeout=5)
    worker, client = world.busy()
    world.wait(5)
    assert world.state(worker) == "stuck"
    other = world.client(b"next")
    assert worker.words() == ["HEARTBEAT", "HEARTBEAT"]
    old = worker.client
    assert worker.reply(b"too late", client=old) == ["next"]
    assert world.counters.late_results == 1
    assert client.told() == other.told() == []
    worker.reply(b"in time")
    assert other.done(b"in time")


def test_a_heartbeat_does_not_prove_an_stuck_worker() -> None:
    """D1: alive is not idle."""
    world = World(job_timeout=5)
    worker, _ = world.busy()
    world.wait(5)
    world.client(b"next")
    assert "next" not in worker.heartbeat()
    assert world.state(worker) == "stuck"


def test_an_stuck_worker_is_waited_for_stuck_limit() -> None:
    world = World(job_timeout=5, stuck_timeout=20)
    worker, _ = world.busy()
    world.wait_beating(26, worker)
    assert worker.words()[-1] == "DISCONNECT"


@every
def test_the_same_reply_again_is_late_and_not_unexpected(speech: Speech) -> None:
    world = World()
    worker, client = world.busy(speech)
    worker.reply(b"once")
    assert worker.reply(b"twice") == []
    assert client.done(b"once")
    assert world.counters.late_results == 1
    assert world.state(worker) == "idle"
    assert world.bad == {}


def test_the_same_reply_again_while_the_next_job_runs_is_late() -> None:
    world = World()
    worker, _ = world.busy()
    first = worker.client
    other = world.client(b"next")
    assert worker.reply(b"once") == ["next"]
    assert worker.reply(b"twice", client=first) == []
    assert world.state(worker) == "busy"
    assert other.told() == []
    worker.reply(b"right")
    assert other.done(b"right")
    assert world.counters.late_results == 1


def test_a_reply_for_a_job_of_an_earlier_connection_is_late() -> None:
    """R39's hole is closed here: the token tells."""
    world = World()
    worker, client = world.busy()
    token = worker.client
    worker.cut()
    again = world.worker()
    assert again.reply(b"of another life", client=token) == []
    assert (world.counters.late_results, world.state(again), client.told()) == (1, "idle", [])
    fresh = world.client(b"next")
    assert again.words() == ["next"]
    assert again.reply(b"of another life", client=token) == []
    again.reply(b"right")
    assert fresh.done(b"right")


def test_t8_a_reply_with_a_token_of_another_workers_job_finishes_nothing() -> None:
    world = World()
    honest, client = world.busy()
    liar = world.worker(service=b"other")
    assert liar.reply(b"forged", client=honest.client) == ["DISCONNECT"]
    assert client.told() == []
    honest.reply(b"right")
    assert client.done(b"right")


def test_only_so_many_tokens_of_the_past_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNANSWERED_KEPT", 2)
    world = World()
    tokens = []
    for _ in range(3):
        worker, _ = world.busy()
        tokens.append(worker.client)
        worker.cut()
    worker = world.worker()
    assert worker.reply(client=tokens[2]) == worker.reply(client=tokens[1]) == []
    assert worker.reply(client=tokens[0]) == ["DISCONNECT"]
