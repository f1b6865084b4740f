"""Events of other brokers as bytes."""

from __future__ import annotations

import pytest
from cluster_world import World

from dragoman.carriers.malformed import Malformed
from dragoman.cluster.records import WatchedEvents, WatchEvents
from dragoman.core.events import JOB_DELAYED, WORKER_JOINED, EndedAttempt, JobEvent, WorkerEvent
from dragoman.core.model import JobId, WorkerId
from dragoman.core.states import Outcome
from dragoman.server.packed_events import pack_events, unpack_events

LAST = EndedAttempt(1, "w", Outcome.TIMED_OUT, "no result within 30 s", 30.0)


def test_events_are_the_same_at_the_other_broker() -> None:
    job = JobEvent(
        JOB_DELAYED,
        JobId(bytes(range(16))),
        "s",
        True,
        True,
        2,
        "w",
        WorkerId(7),
        Outcome.FAILED,
        "no",
        True,
        b"\xff",
        "ann",
        "native",
        3,
        LAST,
        1.5,
        "delayed",
        "http",
    )
    bare = JobEvent(JOB_DELAYED, JobId(bytes(16)), "s", False, False)
    worker = WorkerEvent(WORKER_JOINED, WorkerId(7), "w", "native", ("a", "b"), 4, owner="ann")
    assert unpack_events(pack_events([job, worker, bare])) == [job, worker, bare]


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x91\x90", b"\x91\x92\x01\x02", b"\x91\x92\x03\x02"])
def test_bytes_that_are_no_events_are_malformed(data: bytes) -> None:
    with pytest.raises(Malformed, match="bad events"):
        unpack_events(data)


def test_records_that_this_release_cannot_read_are_logged_and_dropped() -> None:
    world = World("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    b.side.send(b.side.peers["a"], WatchEvents(1, 6.0, b'{"unknown":1}'))
    world.run()
    assert (len(a.watched), a.remarks.count("bad message")) == (0, 1)
    received: list[object] = []
    watch = a.events.watch(b"", "local", lambda *facts: received.append(facts))
    b.side.send(b.side.peers["a"], WatchedEvents(watch.number, b"\xc1"))
    world.run(1.5)
    assert (received, a.remarks.count("bad message")) == ([], 2)
