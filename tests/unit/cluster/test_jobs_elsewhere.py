"""Jobs that run at another broker: given, finished, declined, cancelled, lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from case_tables import check_every_row
from dragoman.carriers.malformed import Malformed
from dragoman.cluster.gossip import Gossip, encode_gossip, read_gossip, read_settings
from dragoman.cluster.records import VERSION, Packet, encode_packet, read_packet, read_records
from dragoman.core.failure import Failure
from dragoman.core.model import Caller
from dragoman.core.options import JobOptions
from dragoman.core.owners import Owner
from dragoman.core.states import Outcome
from owners import LOCAL_OWNER

from .world import World


def joined(*names: str, **options: float) -> World:
    world = World(*names, **options)  # type: ignore[arg-type]
    world.run(1.5)
    assert all(len(node.side.peers) == len(names) - 1 for node in world.nodes.values())
    return world


def test_a_call_runs_at_a_worker_of_another_broker() -> None:
    world = joined("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    b.worker("s")
    world.run()
    job = a.call(b"hello", "s")
    world.run()
    (attempt,) = b.local.sent
    assert (attempt.job.payload, attempt.job.id) == (b"hello", job.id if job else None)
    b.finish(attempt, b"HELLO")
    world.run()
    assert a.results == [("done", b"HELLO")]
    assert not a.broker.jobs
    assert not b.broker.jobs


def test_local_workers_come_first() -> None:
    world = joined("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    a.worker("s")
    b.worker("s")
    world.run()
    a.call()
    a.call()
    world.run()
    assert (len(a.local.sent), len(b.local.sent)) == (1, 1)


def test_no_more_jobs_are_given_than_slots_are_free() -> None:
    world = joined("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    b.worker("s", capacity=3)
    world.run()
    for _ in range(10):
        a.call()
    world.run()
    assert (len(b.local.sent), a.broker.worker_registry.services["s"].queue.length) == (3, 7)
    for _ in range(9):
        b.finish(b.local.sent.pop(0))
        world.run(0.03)
    assert len(a.results) == 9
    b.finish(b.local.sent.pop(0))
    world.run()
    assert a.results == [("done", b"done")] * 10


def test_no_more_bytes_are_given_to_another_broker_than_it_acknowledges() -> None:
    """R206. A bug: a job for each of its free slots was put on the link at once, whatever its size."""
    world = joined("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    b.worker("s", capacity=20)
    world.run()
    for _ in range(10):
        a.call(bytes(3 << 20))
    a.step()
    assert a.broker.worker_registry.services["s"].queue.length == 8, "two of 3 MiB are over the mark"
    on_the_way: list[int] = []

    def all_arrived() -> bool:
        on_the_way.append(a.side.peers["b"].link.unacknowledged)
        return len(b.local.sent) == 10

    world.run_until(all_arrived)
    assert 6 << 20 < max(on_the_way) < 7 << 20
    for attempt in b.local.sent:
        b.finish(attempt)
    world.run()
    assert a.results == [("done", b"done")] * 10
    assert not a.broker.dispatch.loaded


def test_a_job_never_goes_to_a_third_broker() -> None:
    """C7: the second broker has a worker when it is asked, and none when the job arrives."""
    world = joined("a", "b", "c")
    a, b, c = world.nodes.values()
    worker = b.worker("s")
    world.run()
    c.worker("s")
    a.call()
    a.step()
    b.broker.leave(worker, world.now, "gone")
    world.run()
    assert not b.local.sent
    (attempt,) = c.local.sent
    c.finish(attempt)
    world.run()
    assert a.results == [("done", b"done")]


def test_a_declined_job_uses_up_no_attempt() -> None:
    world = joined("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    b.worker("s")
    world.run()
    job = a.call(attempts=1)
    a.step()
    b.call()  # takes the slot first
    world.run()
    assert job is not None
    assert (job.spent, job.state.value) == (0, "waiting")
    b.finish(b.local.sent.pop(0))
    world.run()
    b.finish(b.local.sent.pop(0))
    world.run()
    assert a.results == [("done", b"done")]
    assert a.side.gives == {"busy": 1, "done": 1}


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.LOST])
def test_a_failure_arrives_with_its_type_and_traceback(outcome: Outcome) -> None:
    world = joined("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    b.worker("s")
    world.run()
    a.call()
    world.run()
    failure = Failure("ValueError", "no", "File x", None)
    b.broker.fail(b.local.sent[0], "ValueError: no", world.now, failure, outcome)
    world.run()
    (delivered,) = a.local.outcomes
    assert (delivered.outcome, delivered.reason, delivered.failure) == (outcome, "ValueError: no", failure)


def test_attempts_are_counted_by_the_broker_of_the_job() -> None:
    world = joined("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    b.worker("s")
    world.run()
    job = a.call(attempts=2, retry_first=0.1)
    for _ in range(2):
        world.run_until(lambda: b.local.sent)
        b.broker.fail(b.local.sent.pop(), "no", world.now)
    world.run()
    assert [(each.outcome, each.reason) for each in a.local.outcomes] == [(Outcome.FAILED, "no")]
    assert job is not None
    assert job.spent == 2


def test_a_worker_of_another_broker_gets_the_number_of_the_attempt() -> None:
    """Each attempt was the first one for a worker of another broker."""
    world = joined("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    b.worker("s")
    world.run()
    a.call(attempts=3, retry_first=0.1)
    numbers = []
    for _ in range(3):
        world.run_until(lambda: b.local.sent)
        attempt = b.local.sent.pop()
        numbers.append(attempt.number)
        b.broker.fail(attempt, "no", world.now)
    assert numbers == [1, 2, 3]


def test_progress_and_parts_travel() -> None:
    world = joined("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    b.worker("s")
    world.run()
    a.call(streams=True)
    world.run()
    (attempt,) = b.local.sent
    b.broker.attempts.progress(attempt, b"half", world.now)
    b.broker.attempts.progress(attempt, b"part", world.now, is_part=True)
    b.finish(attempt, b"end")
    world.run()
    assert (a.local.progress, a.results) == ([b"half", b"part"], [("done", b"end")])


def test_a_cancelled_job_is_recalled_and_its_slot_is_free_again() -> None:
    world = joined("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    b.worker("s")
    world.run()
    job = a.call()
    world.run()
    assert job is not None
    a.broker.withdraw(job, world.now, "not needed")
    world.run()
    assert b.local.cancelled == b.local.sent
    b.finish(b.local.sent.pop())  # late
    a.call(b"next")
    world.run()
    b.finish(b.local.sent.pop())
    world.run()
    assert [each for each, _ in a.results] == ["cancelled", "done"]
    assert not a.broker.worker_registry.services["s"].queue.length


def test_the_time_limit_travels_as_a_duration() -> None:
    world = joined("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    b.worker("s")
    world.run()
    a.call(job_timeout=2.0)
    world.run()
    (attempt,) = b.local.sent
    assert 1.5 < attempt.over_at - world.now <= 2.1
    world.run(2.5)
    assert [each for each, _ in a.results] == ["timed out"]


def test_jobs_at_a_broker_that_is_gone_are_lost_or_tried_again() -> None:
    """D8: as if its workers had died."""
    world = joined("a", "b", "c")
    a, b, c = world.nodes.values()
    b.worker("s")
    world.run()
    a.call(attempts=1)
    again = a.call(attempts=2)
    world.run()
    assert len(b.local.sent) == 1
    world.freeze("b")
    world.run(4.0)
    assert a.results == []  # silent, and perhaps only slow
    c.worker("s")
    world.run_until(lambda: a.results and c.local.sent)
    assert a.results == [("lost", b"")]
    assert again is not None
    c.finish(c.local.sent[0])
    world.run()
    assert a.results[1:] == [("done", b"done")]


def test_jobs_of_a_broker_that_is_gone_have_no_caller() -> None:
    """R19: what runs may finish, and its result is dropped."""
    world = joined("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    b.worker("s")
    world.run()
    a.call()
    world.run()
    world.freeze("a")
    world.run(15.0)
    assert b.side.peers == {}
    b.finish(b.local.sent[0])
    world.run()
    assert not b.broker.jobs
    assert b.broker.counters.unclaimed_results == 1


def test_a_restarted_broker_is_another_one() -> None:
    world = joined("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    b.worker("s")
    world.run()
    a.call(attempts=1)
    world.run()
    again = world.start("b")
    again.worker("s")
    world.run(5.0)
    assert a.results == [("lost", b"")]
    a.call()
    world.run()
    assert len(again.local.sent) == 1


def test_local_work_goes_on_without_nats_and_remote_services_are_partitioned() -> None:
    world = joined("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    a.worker("mine")
    b.worker("s")
    world.run()
    a.call(b"before", "s")
    world.run()
    world.cut("a")
    a.call(b"", "mine")
    a.call(b"", "s")
    world.run()
    assert [each.job.service.name for each in a.local.sent] == ["mine"]
    (refused,) = a.local.outcomes
    assert refused.reason == "partitioned: workers for 's' are at brokers that are not heard now; retry later"
    b.finish(b.local.sent[0], b"meanwhile")
    world.heal("a")
    world.run(5.0)
    assert a.results[1:] == [("done", b"meanwhile")]
    a.call(b"after", "s")
    world.run()
    assert [each.job.payload for each in b.local.sent][1:] == [b"after"]


def test_an_owner_is_not_charged_for_a_service_that_is_heard_of_again() -> None:
    """A job that waited for a service of a silent broker charged its owner for the name, also after it was back."""
    world = joined("a", "b")
    first, second = world.nodes["a"], world.nodes["b"]
    second.worker("s")
    world.run(1.0)
    world.cut("a")
    owner = Owner(LOCAL_OWNER.principal)
    job = first.broker.submit("s", b"x", Caller(first.local, owner), JobOptions(waits=True), world.now)
    assert job is not None
    assert owner.names == 1
    world.heal("a")
    world.run_until(lambda: second.local.sent)
    assert owner.names == 0


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_or_done_twice_while_messages_are_lost(seed: int) -> None:
    """Links repeat what NATS drops: 30 % of all messages here."""
    world = joined("a", "b", "c")
    world.loss, world.random = 0.3, type(world.random)(seed)
    a, b, c = world.nodes.values()
    b.worker("s", capacity=4)
    c.worker("s", capacity=4)
    world.run(3.0)
    jobs = {b"%d" % number for number in range(60)}
    for payload in jobs:
        a.call(payload)
    ran: list[bytes] = []

    def work() -> bool:
        for node in (b, c):
            while node.local.sent:
                attempt = node.local.sent.pop()
                ran.append(bytes(attempt.job.payload))
                node.finish(attempt, attempt.job.payload)  # type: ignore[arg-type]
        return len(a.local.outcomes) == len(jobs)

    world.run_until(work, 120.0)
    assert sorted(ran) == sorted(jobs)
    assert sorted(result for outcome, result in a.results if outcome == "done") == sorted(jobs)


def test_messages_that_cannot_be_read_are_malformed_and_nothing_else() -> None:
    """Text that is not UTF-8, and a name that cannot be in a subject, ended the connection to NATS."""
    good = encode_gossip(Gossip(VERSION, "eu1", "0123456789abcdef"))
    packet = encode_packet(Packet(VERSION, "eu1", "0123456789abcdef", 0, 0, True, b""))
    assert read_gossip(good).broker == "eu1"
    assert read_packet(packet).broker == "eu1"

    def check(read: Callable[[bytes], object], data: bytes) -> None:
        with pytest.raises(Malformed):
            read(data)

    names = ("", "a b", ">", "a.b", "x\r\nPUB", "é", "n" * 33)
    rows: list[tuple[Callable[[bytes], object], bytes]] = [
        *((read_gossip, encode_gossip(Gossip(VERSION, name, "0123456789abcdef"))) for name in names),
        *((read_gossip, encode_gossip(Gossip(VERSION, "eu1", name))) for name in names),
        *((read_packet, encode_packet(Packet(VERSION, name, "0123456789abcdef", 0, 0, True, b""))) for name in names),
        *((read_packet, encode_packet(Packet(VERSION, "eu1", name, 0, 0, True, b""))) for name in names),
        (read_gossip, good.replace(b"eu1", b"\xff\xfe1")),
        (read_packet, packet.replace(b"eu1", b"\xff\xfe1")),
        (read_records, b"\x91\x93\x04\xc4\x01x\xa2\xff\xfe"),
        (read_settings, b"\x81\xa2\xff\xfe\x91\xc3"),
        *((each, b"\x91" * 5000) for each in (read_gossip, read_packet, read_records, read_settings)),
    ]
    check_every_row(check, rows)


def test_a_large_payload_is_cut_into_several_messages() -> None:
    world = joined("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    for node in (a, b):
        for peer in node.side.peers.values():
            peer.link.max_message = 1_000
    b.worker("s")
    world.run()
    payload = bytes(range(256)) * 40
    a.call(payload)
    world.run()
    (attempt,) = b.local.sent
    assert attempt.job.payload == payload
    b.finish(attempt, payload[::-1])
    world.run()
    assert a.results == [("done", payload[::-1])]
