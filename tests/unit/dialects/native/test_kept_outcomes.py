"""Outcomes that the broker keeps for native clients that are away, and the sessions of those clients: limits."""

from __future__ import annotations

import pytest

from .resuming import done, resume
from .world import SECRET, A, B, C, D, World, names, result, submit

# -------------------------------------------------------------------- what is kept


def test_the_last_outcomes_are_kept_as_many_as_the_window_has() -> None:
    world = World()
    worker, client = world.worker(), world.client(SECRET, window=3)
    ids = [done(world, worker, client, b"%d" % number) for number in range(5)]
    client.cut()
    again = resume(world, *ids)
    told = again.told()
    assert [said for said in told if said[0] == "RESULT"] == [
        ("RESULT", id, b"%d" % number) for number, id in enumerate(ids) if number >= 2
    ]
    assert [said for said in told if said[0] == "MISSING"] == [("MISSING", id) for id in ids[:2]]


def test_what_was_told_again_is_dropped_last() -> None:
    """A and B were asked for in the order in which they were submitted, though B had ended first. A arrived and made
    room for C, whose outcome pushed out B's, which had not: B was missing, sent again, and run twice."""
    world = World()
    worker, client = world.worker(capacity=3), world.client(SECRET, window=2)
    client.say(*submit([(A, b"a"), (B, b"b")]))
    (_, first, *_), (_, second, *_) = worker.told()
    worker.say(*result((second, b"B")))
    worker.say(*result((first, b"A")))
    client.cut()
    again = resume(world, A, B)
    again.receive(submit([(C, b"c")]))
    world.run_once()
    ((_, third, *_),) = worker.told()
    worker.say(*result((third, b"C")))
    again.cut()  # B and C were on the way
    assert resume(world, B, C).told() == [("RESULT", B, b"B"), ("RESULT", C, b"C")]


@pytest.mark.parametrize("size", [1000, 40_000, 99_000])
def test_outcomes_over_max_kept_bytes_are_dropped_and_told_as_lost(size: int) -> None:
    world = World(max_kept_bytes=100_000)
    worker, client = world.worker(), world.client(SECRET)
    ids = [done(world, worker, client, bytes(size)) for _ in range(102)]
    client.cut()
    told = resume(world, *ids).told()
    kept = 100_000 // size
    assert [said[1] for said in told if said[0] == "RESULT"] == ids[-kept:]
    lost = [said for said in told if said[0] == "FAILED"]
    assert [said[1:3] for said in lost] == [("lost", id) for id in ids[:-kept]]
    assert all("max_kept_bytes" in said[4] for said in lost)


def test_an_outcome_that_was_not_kept_is_told_as_lost_once_and_never_missing() -> None:
    """MISSING would let it run twice."""
    world = World(max_kept_bytes=10)
    worker, client = world.worker(), world.client(SECRET)
    id = done(world, worker, client, b"eleven more")
    client.cut()
    again = resume(world, id, id)
    assert [said[:3] for said in again.told()] == [("FAILED", "lost", id)]


def test_an_outcome_that_was_not_kept_and_came_between_welcome_and_resume_is_not_told_as_lost() -> None:
    """It came, and then it was said to be lost."""
    world = World(max_kept_bytes=0)
    worker, client = world.worker(), world.client(SECRET)
    token, id = world.running(worker, client)
    client.cut()
    again, _ = world.resumed()
    worker.say(*result((token, b"DONE")))
    assert again.say(*names("RESUME", id)) == [("RESULT", id, b"DONE")]


def test_what_never_arrived_is_missing_even_if_other_outcomes_were_not_kept() -> None:
    """After one outcome had been dropped, all that did not arrive were reported as lost, until the session ended."""
    world = World(max_kept_bytes=0)
    worker, client = world.worker(), world.client(SECRET)
    lost = done(world, worker, client)
    client.cut()
    told = resume(world, A, lost).told()
    assert [said[0] for said in told] == ["FAILED", "MISSING"]


def test_texts_of_failures_count_among_the_kept_bytes() -> None:
    """They were not counted: a client could make us keep 128 KiB for each job of its window."""
    world = World(max_kept_bytes=100_000)
    worker, client = world.worker(), world.client(SECRET)
    for _ in range(10):
        token, _ = world.running(worker, client)
        worker.receive([b"\x21\x01" + token, b"", b"m" * 20_000, b"d" * 20_000])
        world.run_once()
    assert world.client_of(client)._kept_bytes == 80_000


def test_ack_drops_outcomes_so_that_others_can_be_kept() -> None:
    world = World(max_kept_bytes=100)
    worker, client = world.worker(), world.client(SECRET)
    ids = [done(world, worker, client, bytes(40)) for _ in range(2)]
    client.say(*names("ACK", ids[0], A, ids[0]))
    client.say(*names("ACK", ids[0]))
    third = done(world, worker, client, bytes(60))
    client.cut()
    assert [said[:2] for said in resume(world, ids[1], third).told()] == [("RESULT", ids[1]), ("RESULT", third)]


def test_ack_of_some_results_of_a_message_drops_these() -> None:
    world = World()
    worker, client = world.worker(capacity=3), world.client(SECRET)
    jobs = [world.running(worker, client) for _ in range(3)]
    worker.say(*result(*jobs))
    (_, first), (_, second), (_, third) = jobs
    client.say(*names("ACK", second))
    client.cut()
    told = resume(world, first, second, third).told()
    assert told == [("RESULT", first, first), ("RESULT", third, third), ("MISSING", second)]


def test_an_id_that_is_used_again_is_kept_with_its_last_outcome() -> None:
    """Bytes of the first one were counted for ever; once these were over max_kept_bytes, no outcome was sent at all."""
    world = World(max_kept_bytes=1000)
    worker, client = world.worker(), world.client(SECRET)
    for number in range(30):
        client.say(*submit([(A, b"")]))
        ((_, token, *_),) = worker.told()
        worker.say(*result((token, b"%02d" % number * 50)))
        client.say(*names("ACK", D))
    client.cut()
    assert resume(world, A).told() == [("RESULT", A, b"29" * 50)]


def test_a_present_job_hides_the_kept_outcome_of_an_earlier_one_of_its_id() -> None:
    world = World()
    worker, client = world.worker(), world.client(SECRET)
    client.say(*submit([(A, b"1")]))
    ((_, token, *_),) = worker.told()
    worker.say(*result((token, b"ONE")))
    client.say(*submit([(A, b"2")]))
    client.cut()
    again = resume(world, A)
    assert again.told() == []
    ((_, token, *_),) = worker.told()
    worker.say(*result((token, b"TWO")))
    assert again.told() == [("RESULT", A, b"TWO")]


def test_nothing_is_kept_for_clients_without_a_session() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    done(world, worker, client)
    assert world.client_of(client).kept_messages() == {}


# -------------------------------------------------------------------- how many may be away


def test_beyond_max_sessions_the_one_that_left_first_is_forgotten() -> None:
    world = World(max_sessions=2)
    secrets = [f"{number:032x}" for number in range(4)]
    clients = [world.client(secret) for secret in secrets]
    for client in clients:
        world.submit(client, b"job", flags=1)
    for client in clients[:3]:
        client.cut()
    assert world.ended == {"cancelled": 1}
    assert [world.resumed(secret)[1] for secret in secrets] == [False, True, True, True]


def test_with_max_sessions_0_nobody_comes_back() -> None:
    world = World(max_sessions=0)
    client = world.client(SECRET)
    world.submit(client, b"job", flags=1)
    client.cut()
    assert world.present == 0
    assert not world.resumed()[1]


def test_clients_that_come_and_go_leave_nothing_behind() -> None:
    world = World(client_resume_timeout=1.0)
    for number in range(50):
        client = world.client(f"{number:032x}")
        world.submit(client, b"job", flags=1)
        client.cut()
    world.wait(2)
    assert world.present == 0
    assert world.session._clients.sessions._by_secret == {}
    assert world.session._clients.sessions._away == {}
