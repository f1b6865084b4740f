"""Native clients that reconnect: every job ends for them exactly once."""

from __future__ import annotations

import pytest

from .resuming import done, resume
from .world import MAX_PAYLOAD, SECRET, A, B, World, failed, hello, names, new_id, report, result, submit

OTHER_SECRET = SECRET[::-1]


# -------------------------------------------------------------------- the connection breaks


def test_a_waiting_job_waits_on_and_its_outcome_comes() -> None:
    world = World()
    client = world.client(SECRET)
    (id,) = world.submit(client, b"job", flags=1)
    client.cut()
    world.wait(29)
    again = resume(world, id)
    assert again.told() == []
    worker = world.worker()
    ((_, token, *_),) = worker.told()
    worker.say(*result((token, b"DONE")))
    assert again.told() == [("RESULT", id, b"DONE")]


def test_a_job_may_be_given_out_while_its_client_is_away() -> None:
    world = World()
    client = world.client(SECRET)
    (id,) = world.submit(client, b"job", flags=1)
    client.cut()
    worker = world.worker()
    ((_, token, *_),) = worker.told()
    worker.say(*result((token, b"DONE")))
    assert resume(world, id).told() == [("RESULT", id, b"DONE")]


def test_a_running_job_runs_on_and_its_outcome_comes() -> None:
    world = World()
    worker, client = world.worker(), world.client(SECRET)
    token, id = world.running(worker, client)
    client.cut()
    again = resume(world, id)
    assert again.told() == []
    worker.say(*result((token, b"DONE")))
    assert again.told() == [("RESULT", id, b"DONE")]


def test_outcomes_that_came_while_it_was_away_or_that_it_did_not_get_are_repeated() -> None:
    world = World()
    worker, client = world.worker(capacity=3), world.client(SECRET)
    on_the_way = done(world, worker, client, b"1")
    (first, while_away), (second, fails) = (world.running(worker, client) for _ in range(2))
    client.cut()
    worker.say(*result((first, b"2")))
    worker.say(*failed(second, "ValueError", "no", "Traceback"))
    again = resume(world, on_the_way, while_away, fails)
    assert again.told() == [
        ("RESULT", on_the_way, b"1"),
        ("RESULT", while_away, b"2"),
        ("FAILED", "failed", fails, "ValueError", "no", "Traceback"),
    ]


def test_results_that_were_told_together_are_repeated_one_by_one_as_they_are_asked_for() -> None:
    world = World()
    worker, client = world.worker(capacity=3), world.client(SECRET)
    jobs = [world.running(worker, client) for _ in range(3)]
    worker.say(*result(*((token, id[-1:]) for token, id in jobs)))
    client.cut()
    (_, first), (_, second), (_, third) = jobs
    again = resume(world, third, first)
    assert again.told() == [("RESULT", third, third[-1:]), ("RESULT", first, first[-1:])]
    assert again.say(*names("RESUME", second)) == [("RESULT", second, second[-1:])]


def test_a_submit_that_never_arrived_is_missing_and_may_be_sent_again() -> None:
    world = World()
    worker, client = world.worker(), world.client(SECRET)
    client.cut()
    again = resume(world, A, B)
    assert again.told() == [("MISSING", A), ("MISSING", B)]
    assert again.say(*submit([(A, b"job")])) == []
    ((_, token, *_),) = worker.told()
    worker.say(*result((token, b"DONE")))
    assert again.told() == [("RESULT", A, b"DONE")]


def test_a_refusal_is_an_outcome_that_is_repeated() -> None:
    world = World()
    client = world.client(SECRET)
    (told,) = client.say(*submit([(A, b"")]))
    assert told[3] == "no such service"
    client.cut()
    assert resume(world, A).told() == [told]


@pytest.mark.parametrize(("how", "outcome"), [("cancelled", "cancelled"), ("deadline", "timed out"), ("lost", "lost")])
def test_every_kind_of_outcome_is_repeated(how: str, outcome: str) -> None:
    world = World()
    worker, client = world.worker(), world.client(SECRET)
    _, id = world.running(worker, client, deadline=5_000)
    if how == "cancelled":
        client.say(*names("CANCEL", id))
    client.cut()
    if how == "lost":
        worker.cut()
    world.wait(6)
    assert [said[1:3] for said in resume(world, id).told()] == [(outcome, id)]


def test_what_is_not_asked_for_is_not_told_again() -> None:
    world = World()
    worker, client = world.worker(), world.client(SECRET)
    done(world, worker, client)
    second = done(world, worker, client)
    client.cut()
    assert [said[1] for said in resume(world, second).told()] == [second]


def test_an_outcome_that_comes_between_welcome_and_resume_is_told_once() -> None:
    """The client resumed it before it had come, and received it twice."""
    world = World()
    worker, client = world.worker(), world.client(SECRET)
    token, id = world.running(worker, client)
    client.cut()
    again, _ = world.resumed()
    worker.say(*result((token, b"DONE")))
    again.receive(names("RESUME", id))
    again.receive(names("RESUME", id, id))
    world.run_once()
    assert again.told() == [("RESULT", id, b"DONE")]


def test_an_outcome_that_is_asked_for_twice_is_told_once_a_connection() -> None:
    world = World()
    worker, client = world.worker(), world.client(SECRET)
    id = done(world, worker, client)
    for _ in range(3):
        client.cut()
        client = resume(world, id, id)
        assert client.told() == [("RESULT", id, b"DONE")]
        assert client.say(*names("RESUME", id)) == []


def test_whoever_comes_back_may_lose_its_connection_again() -> None:
    world = World()
    worker, client = world.worker(), world.client(SECRET)
    token, id = world.running(worker, client, job_timeout=600_000)
    for _ in range(5):
        client.cut()
        world.wait(29, worker)
        client = resume(world, id)
    worker.say(*result((token, b"DONE")))
    assert client.told() == [("RESULT", id, b"DONE")]


def test_progress_and_parts_are_not_repeated() -> None:
    world = World()
    worker, client = world.worker(), world.client(SECRET)
    token, id = world.running(worker, client)
    worker.say(*report("PART", token, b"1"))
    client.cut()
    worker.say(*report("PART", token, b"2"))
    again = resume(world, id)
    worker.say(*report("PART", token, b"3"))
    worker.say(*result((token, b"4")))
    assert again.told() == [("PART", id, 1, b"3"), ("RESULT", id, b"4")]


# -------------------------------------------------------------------- in time, too late, and for good


def test_whoever_comes_too_late_is_not_resumed() -> None:
    world = World()
    worker, client = world.worker(), world.client(SECRET)
    token, runs = world.running(worker, client)
    (waits,) = world.submit(client, b"waits")
    client.cut()
    world.wait(30.1, worker)
    assert world.ended == {"cancelled": 1}
    again, is_resumed = world.resumed()
    assert not is_resumed
    assert again.say(*names("RESUME", runs, waits)) == [("MISSING", runs), ("MISSING", waits)]
    worker.say(*result((token, b"DONE")))
    assert again.told() == []
    assert world.counters.unclaimed_results == 1


def test_resume_is_the_time_to_come_back() -> None:
    world = World(client_resume_timeout=5.0)
    assert world.connect().say(*hello(1, {}))[0][2]["resume"] == 5.0
    world.client(SECRET).cut()
    world.wait(4.9)
    again, is_resumed = world.resumed()
    assert is_resumed
    again.cut()
    world.wait(5.1)
    assert not world.resumed()[1]


def test_with_resume_0_nobody_comes_back() -> None:
    world = World(client_resume_timeout=0.0)
    client = world.client(SECRET)
    world.submit(client, b"job", flags=1)
    client.cut()
    assert world.present == 0
    assert not world.resumed()[1]


def test_a_client_without_a_session_has_nothing_to_resume() -> None:
    world = World()
    client = world.client()
    (id,) = world.submit(client, b"job", flags=1)
    client.cut()
    other = world.client()
    assert other.say(*names("RESUME", id)) == [("MISSING", id)]


def test_whoever_said_bye_does_not_come_back() -> None:
    world = World()
    worker, client = world.worker(), world.client(SECRET)
    done(world, worker, client)
    client.say(b"\x06")
    assert not world.resumed()[1]


def test_another_secret_is_another_session() -> None:
    world = World()
    client = world.client(SECRET)
    (id,) = world.submit(client, b"job", flags=1)
    client.cut()
    stranger = world.client(OTHER_SECRET)
    assert stranger.say(*names("RESUME", id)) == [("MISSING", id)]
    assert stranger.say(*names("CANCEL", id)) == []
    assert resume(world, id).told() == []


def test_a_session_whose_welcome_never_arrived_is_not_the_one_that_its_client_means() -> None:
    """The broker had forgotten a client and started a new session for it, but that WELCOME was lost. On its next
    connection it received that its session was resumed and its jobs were missing, and so they ran twice."""
    world = World(client_resume_timeout=5.0)
    worker, client = world.worker(), world.client(SECRET)
    token, _ = world.running(worker, client)
    known = world.epochs[SECRET]
    client.cut()
    world.wait(6, worker)
    assert not world.resumed()[1]  # this WELCOME gets lost, and so does its connection
    world.epochs[SECRET] = known
    again, is_resumed = world.resumed()
    assert not is_resumed
    assert world.epochs[SECRET] != known
    worker.say(*result((token, b"DONE")))
    assert again.told() == []


def test_secrets_are_the_same_in_capitals() -> None:
    world = World()
    world.client(SECRET.upper()).cut()
    assert world.resumed(SECRET)[1]


def test_a_broker_that_was_started_anew_knows_nobody() -> None:
    World().client(SECRET).cut()
    again, is_resumed = World().resumed()
    assert not is_resumed
    assert again.say(*names("RESUME", A)) == [("MISSING", A)]


def test_d13_our_own_pause_forgets_nobody() -> None:
    """A client that was disconnected while the broker was paused was forgotten before it could send HELLO."""
    world = World()
    client = world.client(SECRET)
    client.cut()
    world.wait(10)
    world.now += 60
    world.run_once()
    assert world.resumed()[1]


def test_d13_after_our_own_pause_those_who_do_not_come_back_are_forgotten() -> None:
    world = World()
    client = world.client(SECRET)
    world.submit(client, b"job", flags=1)
    client.cut()
    world.now += 60
    world.wait(11)
    assert world.session._clients.sessions._by_secret == {}
    assert world.present == 0


# -------------------------------------------------------------------- taking over


def test_a_client_takes_over_from_its_own_old_connection() -> None:
    world = World()
    worker, client = world.worker(), world.client(SECRET)
    token, id = world.running(worker, client)
    again = resume(world, id)
    assert client.is_over
    assert world.counters.takeovers == 1
    worker.say(*result((token, b"DONE")))
    assert again.told() == [("RESULT", id, b"DONE")]


def test_what_arrives_late_by_the_old_connection_is_not_heard() -> None:
    world = World()
    client = world.client(SECRET)
    again = world.connect()
    again.receive(hello(1, {"session": SECRET, "epoch": world.epochs[SECRET]}))
    client.receive(submit([(A, b"late")], flags=1))
    world.run_once()
    again.told()
    assert again.say(*names("RESUME", A)) == [("MISSING", A)]
    assert world.counters.accepted == 0


def test_the_end_of_the_old_connection_does_not_send_its_client_away() -> None:
    world = World()
    client = world.client(SECRET)
    (id,) = world.submit(client, b"job", flags=1)
    again = resume(world, id)
    world.connections.ended(client.peer, "reset")
    world.wait(60)
    assert world.client_of(again).peer is again.peer
    assert world.present == 1


def test_an_outcome_told_to_the_old_connection_is_told_again() -> None:
    world = World()
    worker, client = world.worker(), world.client(SECRET)
    client.stop_reading()
    id = done(world, worker, client)
    assert resume(world, id).told() == [("RESULT", id, b"DONE")]


def test_whoever_knows_the_secret_is_the_client() -> None:
    """The client must keep it secret."""
    world = World()
    first = world.client(SECRET)
    for _ in range(3):
        second, is_resumed = world.resumed()
        assert is_resumed
        assert first.is_over
        first = second
    assert world.counters.takeovers == 3


# -------------------------------------------------------------------- credit


def test_the_window_is_the_session_s_and_what_is_under_way_counts() -> None:
    world = World()
    client = world.client(SECRET, window=2)
    ids = world.submit(client, b"one", b"two", flags=1)
    client.cut()
    again = world.connect()
    ((_, _, about),) = again.say(*hello(1, {"session": SECRET, "epoch": world.epochs[SECRET], "window": 900}))
    assert about["window"] == 2
    assert [said[3] for said in again.say(*submit([(A, b"")], flags=1))] == ["busy"]
    again.say(*names("CANCEL", ids[0]))
    assert again.say(*submit([(A, b"")], flags=1)) == []


def test_a_job_is_cancelled_by_whoever_comes_back() -> None:
    world = World()
    worker, client = world.worker(), world.client(SECRET)
    token, id = world.running(worker, client)
    client.cut()
    again = resume(world, id)
    assert [said[1] for said in again.say(*names("CANCEL", id))] == ["cancelled"]
    assert worker.told() == [("RECALL", token, "cancelled by its caller")]


# -------------------------------------------------------------------- a broker that drains


def test_a_broker_that_drains_tells_those_who_come_back_what_became_of_their_jobs() -> None:
    world = World()
    worker, client = world.worker(), world.client(SECRET)
    token, runs = world.running(worker, client)
    (waits,) = world.submit(client, b"waits")
    client.cut()
    world.broker.operator.close(world.now)
    world.run_once()
    again = resume(world, runs, waits)
    assert [said[:4] for said in again.told()] == [("FAILED", "refused", waits, "draining")]
    worker.say(*result((token, b"DONE")))
    assert again.told() == [("RESULT", runs, b"DONE")]
    assert [said[3] for said in again.say(*submit([(A, b"")]))] == ["draining"]


def test_a_resume_that_cannot_be_read_is_an_error() -> None:
    world = World()
    client = world.client(SECRET)
    for frames in ([b"\x14"], [b"\x14", b""], [b"\x14", b"x"], [b"\x14", bytes(1025 * 16)], [b"\x14", A, B]):
        assert client.say(*frames) == [("ERROR", "RESUME", "malformed")]


def test_a_full_window_of_missing_ids_is_asked_for_in_one_message() -> None:
    world = World()
    client = world.client(SECRET)
    client.cut()
    ids = [new_id(number) for number in range(1024)]
    assert resume(world, *ids).told() == [("MISSING", id) for id in ids]


def test_a_submit_that_was_too_large_is_told_again() -> None:
    world = World()
    client = world.client(SECRET)
    (told,) = client.say(*submit([(A, bytes(MAX_PAYLOAD + 65_536))], flags=1))
    client.cut()
    assert resume(world, A).told() == [told]
