"""Extras of jobs on the native wire: negotiated in HELLO and WELCOME, in SUBMIT, ASK and JOB (R200, R202, R203)."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from case_tables import check_every_row
from dragoman.carriers.malformed import Malformed
from dragoman.core.job_extras import JobExtras
from dragoman.core.model import JobId
from dragoman.dialects.native import extras
from dragoman.dialects.native.client_operations import ClientOperations, PendingOperation
from dragoman.dialects.native.job_extras import with_job_extras
from dragoman.dialects.native.messages import Job, Welcome

from .world import A, B, End, World, ask, hello, read, result, submit

PARENT = JobId(b"p" * 16)
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
BOTH = json.dumps({"parent": PARENT.hex(), "traceparent": TRACE}).encode()
EXTRAS = 16  # flag of SUBMIT
ONE = b"12345678"


def with_extras(jobs: list[tuple[bytes, bytes]], facts: bytes, flags: int = EXTRAS) -> list[bytes]:
    head, ids, *payloads = submit(jobs, flags=flags)
    return [head, ids, facts, *payloads]


def worker_with_extras(world: World, **about: Any) -> End:
    end = world.connect()
    end.receive(hello(2, {"services": ["echo"], "capacity": 4, "extras": True, **about}))
    world.run_once()
    ((word, _, _),) = read(end.inbox.pop(0))
    assert word == "WELCOME"
    return end


def jobs_of(end: End) -> tuple[list[bytes], Any]:
    """Return the ids in the one JOB that a worker got, and its last frame as JSON; None if that is a payload."""
    (frames,) = end.messages()
    ids = [struct.unpack(">16s16sHI", frames[1][at : at + 38])[1] for at in range(0, len(frames[1]), 38)]
    return ids, json.loads(frames[-1]) if len(frames) > 2 + len(ids) else None


# -------------------------------------------------------------------- HELLO and WELCOME


def test_welcome_names_the_extras_for_those_who_know_them() -> None:
    world = World()
    for role, about, expected in (
        (1, {}, None),
        (1, {"extras": "yes"}, None),
        (1, {"extras": True}, ["parent", "traceparent", "tenant", "request_id", "parameters"]),
        (2, {"services": ["echo"]}, None),
        (2, {"services": ["echo"], "extras": True}, ["traceparent", "waited", "parts"]),
    ):
        ((word, _, welcome),) = world.connect().say(*hello(role, about))
        assert (word, welcome.get("extras")) == ("WELCOME", expected)


# -------------------------------------------------------------------- SUBMIT


def test_jobs_of_a_submit_have_its_extras() -> None:
    world = World()
    world.worker(capacity=2)
    client = world.client(extras=True)
    assert client.say(*with_extras([(A, b"one"), (B, b"two")], BOTH)) == []
    for id, payload in ((A, b"one"), (B, b"two")):
        job = world.broker.jobs[JobId(id)]
        assert (job.payload, job.extras) == (payload, JobExtras(PARENT, TRACE))
    assert list(world.broker.job_registry.with_extras.children_of(PARENT)) == [A, B]


def test_jobs_of_a_submit_have_its_tenant() -> None:
    """R185."""
    world = World()
    world.worker(capacity=2)
    client = world.client(extras=True)
    assert client.say(*with_extras([(A, b"one"), (B, b"two")], b'{"tenant": "acme"}')) == []
    assert [world.broker.jobs[JobId(id)].tenant for id in (A, B)] == ["acme", "acme"]


def test_flag_means_nothing_for_a_client_that_did_not_announce_extras() -> None:
    """Brokers have always ignored flags that they did not know."""
    world = World()
    worker, client = world.worker(), world.client()
    client.say(*submit([(A, b"{}")], flags=EXTRAS))
    ((word, token, id, *_, payload),) = worker.told()
    assert (word, id, payload, world.broker.jobs[JobId(A)].extras) == ("JOB", A, b"{}", None)
    worker.say(*result((token, b"")))


WRONG: list[tuple[bytes, str]] = [
    (b"", "the extras are not JSON"),
    (b"\xff", "the extras are not JSON"),
    (b"[]", "the extras are not a JSON object"),
    (b'{"parent": 5}', "the parent in extras must be the id of a job, 32 hex digits"),
    (b'{"parent": "5f"}', "the parent in extras must be the id of a job, 32 hex digits"),
    (b'{"parent": "' + b"x" * 32 + b'"}', "the parent in extras must be the id of a job, 32 hex digits"),
    (b" " * 4097, "4097 bytes of extras; at most 4096 are allowed"),
    (b'{"tenant": 5}', "the tenant in extras must be a text"),
    (
        b'{"tenant": ""}',
        "tenant '' is not a name; 1 to 128 bytes of visible text are allowed",
    ),
]


def test_extras_that_cannot_be_read_are_malformed() -> None:
    def check(frame: bytes, sentence: str) -> None:
        with pytest.raises(Malformed) as problem:
            extras.read_extras(frame)
        assert problem.value.detail == sentence
        world = World()
        world.worker()
        client = world.client(extras=True)
        assert client.say(*with_extras([(A, b"one")], frame)) == [("ERROR", "SUBMIT", "malformed")]
        assert not world.broker.jobs

    check_every_row(check, WRONG)


def test_facts_that_are_not_known_and_invalid_traces_are_ignored() -> None:
    assert extras.read_extras(b'{"colour": "blue"}') is None
    assert extras.read_extras(b'{"traceparent": 7}') is None
    assert extras.read_extras(b'{"traceparent": "00-zz"}') is None


def test_submit_without_a_frame_for_its_extras_is_malformed() -> None:
    world = World()
    world.worker()
    client = world.client(extras=True)
    assert client.say(*submit([(A, b"{}")], flags=EXTRAS)) == [("ERROR", "SUBMIT", "malformed")]


def test_largest_submit_may_have_extras() -> None:
    world = World(window=2000)
    world.worker()
    client = world.client(extras=True, window=2000)
    ids = [number.to_bytes(16, "big") for number in range(1024)]
    assert client.say(*with_extras([(id, b"") for id in ids], BOTH)) == []
    assert len(world.broker.jobs) == 1024


def test_background_job_has_the_extras_of_its_request() -> None:
    world = World()
    client = world.client()
    asked = {"service": "echo", "parent": PARENT.hex(), "traceparent": TRACE}
    ((word, _, view, _),) = client.say(*ask(ONE, "enqueue", asked, b"x"))
    assert (word, view["parent"], view["traceparent"]) == ("TELL", PARENT.hex(), TRACE)


# -------------------------------------------------------------------- ASK


def test_each_copy_of_a_numbered_request_has_an_id_of_its_own_if_the_broker_understands_it() -> None:
    """R235: a repetition says how long ago the first copy was sent, so its bytes are made when it is sent."""
    operations = ClientOperations()
    copies = count(1)
    number = PendingOperation("mine", "purge", b'{"name": "s"}', b"", None, lambda: f"copy {next(copies)}")
    operations.add(b"12345678", number)
    understood = Welcome(5.0, 10.0, 1 << 20, window=10, extras=("request_id",))
    for text in ("copy 1", "copy 2"):
        ((_, request),) = operations.unsent(understood)
        assert json.loads(request) == {"name": "s", "request_id": text}
        operations.lost()
    ((_, request),) = operations.unsent(replace(understood, extras=()))
    assert json.loads(request) == {"name": "s"}


def test_fields_are_added_to_a_request_as_far_as_the_broker_understands_them() -> None:
    given = JobExtras(PARENT, TRACE)
    parent = f'"parent": "{PARENT.hex()}"'
    both = f'{parent}, "traceparent": "{TRACE}"'
    rows = [
        (b'{"service":"s"}', ("parent", "traceparent"), f'{{"service":"s", {both}}}'),
        (b'{"service":"s"}', ("parent",), f'{{"service":"s", {parent}}}'),
        (b'{"service":"s"}', (), '{"service":"s"}'),
        (b"{}", ("parent",), f"{{{parent}}}"),
    ]
    for request, understood, expected in rows:
        assert extras.add_extras(request, given, understood, 65_536) == expected.encode()
    assert extras.add_extras(b'{"service":"s"}', given, ("parent",), 30) == b'{"service":"s"}', "there is no room"


# -------------------------------------------------------------------- JOB


def test_worker_gets_the_trace_of_a_job_and_the_time_it_waited() -> None:
    """R202. Only if it has announced that it reads extras."""
    world = World()
    client = world.client(extras=True)
    client.say(*with_extras([(A, b"one"), (B, b"two")], BOTH, flags=EXTRAS | 1))
    client.say(*submit([(b"C" * 16, b"three")], flags=1))
    world.wait(2.0)
    worker = worker_with_extras(world)
    ids, facts = jobs_of(worker)
    assert ids == [A, B, b"C" * 16]
    assert facts[2] is None
    assert [each["traceparent"] for each in facts[:2]] == [TRACE, TRACE]
    assert 2.0 <= facts[0]["waited"] <= 3.0


def test_other_workers_get_jobs_as_before() -> None:
    world = World()
    worker, client = world.worker(), world.client(extras=True)
    client.say(*with_extras([(A, b"one")], BOTH))
    assert jobs_of(worker) == ([A], None)


def test_retry_does_not_tell_how_long_it_waited() -> None:
    world = World()
    worker = worker_with_extras(world)
    client = world.client(extras=True)
    head, ids, payload = submit([(A, b"one")], flags=EXTRAS, attempts=2)
    client.say(head, ids, BOTH, payload)
    (first,) = worker.messages()
    assert "waited" in json.loads(first[-1])[0]
    worker.receive([b"\x21\x01" + first[1][:16], b"T", b"m", b"", b"0"])
    world.run_once()
    assert jobs_of(worker) == ([A], [{"traceparent": TRACE}])


def test_worker_learns_which_callers_do_not_take_parts() -> None:
    """R203. For the services that it has named, and no others."""
    whole = 8
    for parts, expected in ((["echo"], [{"parts": False}, None]), (["other"], None), ([], None)):
        world = World()
        client = world.client()
        client.receive(submit([(A, b"one")], flags=whole | 1))
        client.receive(submit([(B, b"two")], flags=1))
        world.run_once()
        worker = worker_with_extras(world, parts=parts)
        assert jobs_of(worker) == ([A, B], expected)


def test_extras_of_jobs_are_read() -> None:
    jobs = [Job(A, B, 1, 0.0, "echo"), Job(B, A, 1, 0.0, "echo")]
    facts = [{"traceparent": TRACE, "waited": 1, "parts": False, "colour": "blue"}, None]
    first, second = with_job_extras(jobs, json.dumps(facts).encode())
    assert (first.traceparent, first.waited, first.takes_parts) == (TRACE, 1.0, False)
    assert second is jobs[1]
    (strange,) = with_job_extras(jobs[:1], b'[{"traceparent": 5, "waited": -1, "parts": null}]')
    assert (strange.traceparent, strange.waited, strange.takes_parts) == ("", None, True)
    for wrong in (b"", b"{}", b"[null]", b"[" * 100_000):
        with pytest.raises(Malformed, match="an array with an entry for each job"):
            with_job_extras(jobs, wrong)
