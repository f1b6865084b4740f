"""A whole broker with third-party programs that speak native: written from its page alone, on libzmq, over TCP and
ipc."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import zmq
from broker_setup import MIB, BrokerSetup, Raw, Visitors, Workers

from dragoman.core.states import IDLE, RUNNING
from programs import Program, Programs, until

Start = Callable[..., BrokerSetup]

TCP = "tcp://127.0.0.1:0"
PINGPONG = "pingpong+tcp://127.0.0.1:0?frontend=0&service=echo"
MEMODB = "memodb+tcp://127.0.0.1:0"


@pytest.fixture(params=["tcp", "ipc"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return TCP if request.param == "tcp" else f"ipc://{tmp_path}/n"


def worker(programs: Programs, setup: BrokerSetup, *words: object, kind: str = "native", where: str = "") -> Program:
    """Start a third-party worker, and wait until it has joined."""

    def idle() -> int:
        return int(setup.run(lambda: sum(each.state is IDLE for each in setup.broker.worker_registry.workers.values())))

    before = idle()
    started = programs.stranger(f"{kind}_worker", where or setup.workers, *words)
    until(lambda: idle() > before, "the worker is there and idle")
    return started


def outcomes(client: Program) -> list[str]:
    assert client.ends() == 0, client.err
    begins = ("answer ", "failed ", "timed out ", "lost ", "cancelled ", "refused ")
    return [line for line in client.out.splitlines() if line.startswith(begins)]


# -------------------------------------------------------------------- strangers among themselves


def test_a_strangers_calls_are_answered_by_a_stranger(broker_setup: Start, programs: Programs, url: str) -> None:
    setup = broker_setup(url)
    worker(programs, setup, "echo", "--name", "W", "--capacity", 3)
    client = programs.stranger("native_client", setup.callers, "echo", "one", "two", "three", "four", "five")
    assert outcomes(client) == [f"answer W did {each}" for each in ("one", "two", "three", "four", "five")]


def test_a_stranger_s_failure_and_its_parts_reach_a_stranger(broker_setup: Start, programs: Programs) -> None:
    setup = broker_setup(TCP)
    worker(programs, setup, "echo", "--name", "W")
    client = programs.stranger("native_client", setup.callers, "echo", "fail now", "parts then")
    assert outcomes(client) == ["failed Failed: as it was told to", "answer W did parts then"]
    assert 'progress 1 {"done": 1, "total": 2}\npart 1 the first part, \n' in client.out


def test_a_stranger_drains_and_gives_back_what_it_has_not_begun(broker_setup: Start, programs: Programs) -> None:
    setup = broker_setup(TCP)
    first = worker(programs, setup, "echo", "--name", "first", "--capacity", 9, "--jobs", 2)
    client = programs.stranger("native_client", setup.callers, "echo", "1", "2", "3", "4")
    assert first.ends() == 0, first.err
    worker(programs, setup, "echo", "--name", "second", "--capacity", 2)
    assert outcomes(client) == [
        "answer first did 1",
        "answer first did 2",
        "answer second did 3",
        "answer second did 4",
    ]


def test_a_stranger_that_waits_says_heartbeat_and_stays(broker_setup: Start, programs: Programs, url: str) -> None:
    setup = broker_setup(f"{url}?heartbeat=0.05&lease=5")
    stranger = worker(programs, setup, "echo", "--name", "W")
    stranger.prints("heard 04", times=5)
    client = programs.stranger("native_client", setup.callers, "echo", "job")
    assert outcomes(client) == ["answer W did job"]


def test_a_stranger_that_breaks_off_comes_back_to_its_outcomes(
    broker_setup: Start, programs: Programs, url: str
) -> None:
    setup = broker_setup(url)
    stranger = worker(programs, setup, "echo", "--name", "W", "--capacity", 5)
    client = programs.stranger("native_client", setup.callers, "echo", "sleep 0.2 a", "b", "c", "--break-off")
    assert outcomes(client) == ["answer W did sleep 0.2 a", "answer W did b", "answer W did c"]
    assert "welcome\nresumed\n" in client.out
    assert setup.counters.dispatched == 3
    assert stranger.process.poll() is None


def test_a_stranger_is_refused_what_nobody_offers_and_told_when_its_time_is_over(
    broker_setup: Start, programs: Programs
) -> None:
    setup = broker_setup(TCP)
    refused = programs.stranger("native_client", setup.callers, "nothing", "job")
    assert outcomes(refused) == ["refused no such service: no such service: no worker offers 'nothing'"]
    late = programs.stranger("native_client", setup.callers, "echo", "job", "--wait", "--deadline", 0.2)
    assert outcomes(late) == ["timed out : its deadline passed"]


def test_a_killed_stranger_s_job_is_lost_at_once(broker_setup: Start, programs: Programs) -> None:
    setup = broker_setup(TCP)
    stranger = worker(programs, setup, "echo")
    client = programs.stranger("native_client", setup.callers, "echo", "sleep 60")
    until(lambda: setup.run(lambda: [job for job in setup.broker.jobs.values() if job.state is RUNNING]), "it runs")
    stranger.kill()
    assert outcomes(client) == ["lost : its worker's connection ended"]


# -------------------------------------------------------------------- other dialects in one broker


def test_a_native_caller_is_served_by_a_memodb_worker(broker_setup: Start, programs: Programs) -> None:
    setup = broker_setup(TCP, MEMODB)
    worker(programs, setup, "echo", "--name", "M", kind="memodb", where=setup.places[1]["both"])
    client = programs.stranger("native_client", setup.callers, "echo", "one", "two")
    assert outcomes(client) == ["answer M did one", "answer M did two"]


def test_a_native_caller_is_served_by_a_pingpong_worker(
    broker_setup: Start, programs: Programs, visitors: Visitors
) -> None:
    setup = broker_setup(TCP, PINGPONG)
    with Workers(visitors, setup.places[1]["workers"], do=lambda each: b"pong " + each):
        client = programs.stranger("native_client", setup.callers, "echo", "one", "two", "--wait")
        assert outcomes(client) == ["answer pong one", "answer pong two"]


def test_a_pingpong_caller_is_served_by_a_native_worker(
    broker_setup: Start, programs: Programs, visitors: Visitors
) -> None:
    setup = broker_setup(TCP, PINGPONG)
    worker(programs, setup, "echo", "--name", "W")
    caller = visitors.visit(zmq.DEALER, setup.places[1]["callers"])
    for payload in (b"one", b"", bytes(MIB)):
        caller.send_multipart([b"", payload])
        assert caller.recv_multipart() == [b"", b"W did " + payload]
    caller.send_multipart([b"", b"fail"])
    assert caller.recv_multipart()[-1] == b"failed: Failed: as it was told to"
    caller.send_multipart([b"", b"parts"])
    assert caller.recv_multipart() == [b"", b"the first part, W did parts"]


def test_a_memodb_caller_is_served_by_a_native_worker(broker_setup: Start, programs: Programs) -> None:
    setup = broker_setup(TCP, MEMODB)
    worker(programs, setup, "echo", "--name", "W")
    client = programs.stranger("memodb_client", setup.places[1]["both"], "echo", "one", "two")
    assert client.ends() == 0, client.err
    assert "answer W did one\n" in client.out
    assert "answer W did two\n" in client.out


# -------------------------------------------------------------------- sizes


def welcomed(visitors: Visitors, setup: BrokerSetup, role: bytes, **about: object) -> zmq.Socket:
    visitor = visitors.visit(zmq.DEALER, setup.workers)
    visitor.send_multipart([b"\x01\x01" + role, json.dumps(about).encode()])
    assert visitor.recv_multipart()[0] == b"\x02\x01"
    return visitor


def test_a_batch_of_1024_there_and_back(broker_setup: Start, visitors: Visitors, url: str) -> None:
    setup = broker_setup(f"{url}?window=2000", strict=False)
    worker = welcomed(visitors, setup, b"\x02", services=["echo"], capacity=1024)
    client = welcomed(visitors, setup, b"\x01")
    ids = [number.to_bytes(16, "big") for number in range(1024)]
    client.send_multipart([b"\x10\x00\xff\x00" + bytes(12) + b"echo", b"".join(ids), *ids])
    head, records, *payloads = worker.recv_multipart()
    assert (head, payloads) == (b"\x30echo", ids)
    tokens = [records[at : at + 16] for at in range(0, len(records), 38)]
    worker.send_multipart([b"\x20" + b"".join(tokens), *payloads])
    assert client.recv_multipart() == [b"\x20" + b"".join(ids), *ids]


@pytest.mark.parametrize("size", [0, 1, 70_000, 20 * MIB])
def test_payloads_of_any_size(broker_setup: Start, visitors: Visitors, size: int) -> None:
    setup = broker_setup(TCP)
    worker = welcomed(visitors, setup, b"\x02", services=["echo"])
    client = welcomed(visitors, setup, b"\x01")
    payload = random.Random(size).randbytes(size)
    client.send_multipart([b"\x10\x00\xff\x00" + bytes(12) + b"echo", b"i" * 16, payload])
    _, record, given = worker.recv_multipart()
    assert given == payload
    worker.send_multipart([b"\x20" + record[:16], given])
    assert client.recv_multipart() == [b"\x20" + b"i" * 16, payload]


def test_a_listener_takes_up_to_a_gibibyte(broker_setup: Start, visitors: Visitors) -> None:
    """A bug: its limit was over the carrier's hard cap, and every connection failed with an internal error."""
    setup = broker_setup(f"{TCP}?max_payload=1GiB")
    welcomed(visitors, setup, b"\x01")


def test_what_is_too_large_is_refused_and_the_conversation_goes_on(broker_setup: Start, visitors: Visitors) -> None:
    setup = broker_setup(f"{TCP}?max_payload=100000")
    worker = welcomed(visitors, setup, b"\x02", services=["echo"])
    client = welcomed(visitors, setup, b"\x01")
    head = b"\x10\x00\xff\x00" + bytes(12) + b"echo"
    client.send_multipart([head, b"a" * 16, bytes(MIB)])
    assert client.recv_multipart()[:2] == [b"\x21\x05" + b"a" * 16, b"too large"]
    client.send_multipart([head, b"b" * 16, b"fine"])
    _, record, _ = worker.recv_multipart()
    worker.send_multipart([b"\x20" + record[:16], bytes(MIB)])
    assert client.recv_multipart()[0] == b"\x21\x01" + b"b" * 16
    client.send_multipart([head, b"c" * 16, b"fine"])
    _, record, _ = worker.recv_multipart()
    worker.send_multipart([b"\x20" + record[:16], b"FINE"])
    assert client.recv_multipart() == [b"\x20" + b"c" * 16, b"FINE"]


# -------------------------------------------------------------------- bad peers


def test_garbage_peers_are_told_and_hung_up_on_and_honest_ones_are_served(
    broker_setup: Start, programs: Programs, url: str
) -> None:
    setup = broker_setup(url)
    worker(programs, setup, "echo", "--name", "W")
    rng = random.Random("garbage")
    for number in range(40):
        with Raw(setup.workers) as raw:
            raw.greet()
            if number % 2:
                raw.message(b"\x01\x01" + bytes((1 + number % 4 // 2,)), b'{"services": ["x"]}')
                assert raw.receive()[0] == b"\x02\x01"
            with suppress(ConnectionError):  # it is hung up on before it has said all
                for _ in range(25):
                    raw.message(*(rng.randbytes(rng.randrange(40)) for _ in range(rng.randrange(1, 5))))
                if number % 3:
                    raw.rest()
    with Raw(setup.workers) as other:
        other.say(b"GET / HTTP/1.1\r\n\r\n" * 5)
        other.rest()
    client = programs.stranger("native_client", setup.callers, "echo", "one", "two")
    assert outcomes(client) == ["answer W did one", "answer W did two"]
    reasons = {reason for dialect, reason in setup.counters.bad_messages if dialect == "native"}
    assert reasons >= {"hello first", "unknown word", "malformed"}


def test_a_worker_of_another_protocol_is_told_what_to_say_first(broker_setup: Start, visitors: Visitors) -> None:
    setup = broker_setup(TCP)
    stray = visitors.visit(zmq.DEALER, setup.workers)
    stray.send_multipart([b"", b"READY"])
    word, code, sentence = stray.recv_multipart()
    assert (word, code) == (b"\x03\x00", b"malformed")
    assert sentence
    until(lambda: not setup.runner.connections.peers, "it is hung up on")


@pytest.mark.parametrize("kind", [zmq.PUSH, zmq.REQ, zmq.SUB])
def test_sockets_of_other_kinds_do_no_harm(broker_setup: Start, visitors: Visitors, kind: int) -> None:
    setup = broker_setup(TCP)
    stray = visitors.visit(kind, setup.workers)
    if kind == zmq.SUB:
        stray.subscribe(b"")
    else:
        stray.send(b"\x04")
    client = welcomed(visitors, setup, b"\x01")
    client.send(b"\x04")
    assert client.recv() == b"\x04"
