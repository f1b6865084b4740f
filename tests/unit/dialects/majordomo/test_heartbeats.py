"""Heartbeats in both directions, and leases of Majordomo workers."""

from __future__ import annotations

import pytest

from dragoman.dialects.majordomo import broker_side as module

from .world import Speech, World, every


@every
def test_every_worker_hears_of_us_each_period_idle_or_busy(speech: Speech) -> None:
    world = World(heartbeat=2)
    idle = world.worker(speech, service=b"idle")
    busy, _ = world.busy(speech)
    for _ in range(5):
        world.wait_beating(2, idle)
        assert (idle.words(), busy.words()) == (["HEARTBEAT"], ["HEARTBEAT"])


def test_heartbeats_are_sent_when_each_is_due_and_to_nobody_who_left() -> None:
    world = World(heartbeat=3, liveness=100)
    workers = []
    for _ in range(3):
        workers.append(world.worker())
        world.wait(1)
    first, second, third = workers
    assert [each.words() for each in workers] == [["HEARTBEAT"], [], []]
    second.disconnect()
    world.wait(2)
    assert [each.words() for each in workers] == [[], [], ["HEARTBEAT"]]
    first.cut()
    third.cut()
    assert world.session.tick(world.now) == float("inf")


def test_a_crowd_that_joined_at_once_is_told_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEATS_AT_ONCE", 2)
    world = World(heartbeat=2, liveness=100)
    crowd = [world.worker() for _ in range(5)]
    world.now += 2
    told = []
    while (due := world.runner.run_once()) == world.now:
        told.append(sum(bool(each.stream.taken) for each in crowd))
    assert told == [2, 4]
    assert due > world.now
    world.run_once()
    assert [each.words() for each in crowd] == [["HEARTBEAT"]] * 5


def test_a_new_connection_that_says_nothing_gets_nothing() -> None:
    world = World()
    side = world.connect()
    world.wait(20)
    assert side.told() == []


def test_an_idle_worker_silent_for_liveness_heartbeats_gets_disconnect_and_is_forgotten() -> None:
    world = World(heartbeat=2, liveness=3)
    worker = world.worker()
    world.wait(5.9)
    worker.words()
    world.wait(0.2)
    assert worker.words()[-1] == "DISCONNECT"
    assert world.state(worker) == "parted"
    assert world.counters.expired_workers == 1


@every
def test_any_command_but_disconnect_is_a_life_sign(speech: Speech) -> None:
    world = World(heartbeat=2, liveness=3)
    worker = world.worker(speech)
    for _ in range(4):
        world.wait(5)
        worker.heartbeat()
    client = world.client()
    worker.words()
    world.wait(5)
    worker.reply()
    client.told()
    world.wait(5)
    worker.reply(client=worker.client)  # late, and a life sign all the same
    world.wait(5)
    assert world.state(worker) == "idle"


def test_d5_a_busy_worker_may_be_silent_until_its_jobs_time_is_over() -> None:
    world = World(job_timeout=60)
    worker, client = world.busy()
    world.wait(59)
    assert world.state(worker) == "busy"
    worker.reply(b"slow")
    assert client.done(b"slow")


def test_d12_a_frozen_busy_worker_is_lost_by_the_carriers_ping() -> None:
    world = World(job_timeout=600)
    worker, client = world.busy()
    worker.pump = lambda: False  # type: ignore[method-assign]
    world.wait(16)
    assert world.ended == {"lost": 1}
    assert client.told() == []


def test_d13_our_own_pause_expires_nobody() -> None:
    world = World()
    worker = world.worker()
    world.wait(1)
    world.late(500)
    assert world.state(worker) == "idle"
    world.wait(1)
    assert worker.words() == ["HEARTBEAT"]
