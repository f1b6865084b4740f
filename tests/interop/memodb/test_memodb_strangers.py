"""Third-party programs that speak MemoDB, with each other and with another dialect in one broker, over TCP and ipc."""

from __future__ import annotations

import zmq
from broker_setup import MIB, Visitors, Workers
from memodb_peers import (
    DISCONNECT,
    HEARTBEAT,
    JOB,
    READY,
    RESULT,
    TCP,
    Nngs,
    Plain,
    Start,
    count_workers,
    job,
    joined,
    memo,
    read,
    result_of,
    silent,
)

from programs import Program, Programs, until

PAYLOADS = [b"", b"x", b"m" * 16_384, b"L" * 65_533, bytes(MIB), bytes(range(256)) * 65_536]
BOTH = (TCP, "pingpong+tcp://127.0.0.1:0?frontend=0")


# -------------------------------------------------------------------- strangers among themselves


def test_a_strangers_calls_are_answered_by_a_stranger(broker_setup: Start, programs: Programs, any_url: str) -> None:
    setup = broker_setup(any_url)
    programs.stranger("memodb_worker", setup.workers, "echo", "--name", "W")
    client = programs.stranger("memodb_client", setup.callers, "echo", "one", "two", "three")
    assert client.ends() == 0, client.err
    assert answers(client) == ["W did one", "W did two", "W did three"]


def answers(client: Program) -> list[str]:
    return [line.removeprefix("answer ") for line in client.out.splitlines() if line.startswith("answer ")]


def test_a_stranger_serves_several_services_and_no_other(broker_setup: Start, programs: Programs) -> None:
    setup = broker_setup(f"{TCP}?queue_timeout=0.3")
    worker = programs.stranger("memodb_worker", setup.workers, "red", "green", "blue", "--name", "W")
    for service in ("green", "red", "blue"):
        client = programs.stranger("memodb_client", setup.callers, service, service)
        assert client.ends() == 0, client.err
        worker.prints(f"job {service} {service}")
    other = programs.stranger("memodb_client", setup.callers, "yellow", "x", "--patience", 1)
    assert other.ends() == 1
    assert "gave up x" in other.out
    assert "yellow" not in worker.out
    assert silent(setup) == {"timed out": 1}


def test_a_strangers_threads_share_one_connection_and_work_at_once(
    broker_setup: Start, programs: Programs, any_url: str
) -> None:
    setup = broker_setup(any_url)
    worker = programs.stranger("memodb_threads_worker", setup.workers, "default", "--workers", 5, "--name", "T")
    joined(setup, 5)
    assert len(setup.runner.connections.peers) == 1
    jobs = [f"sleep 0.5 {number}" for number in range(5)]
    client = programs.stranger("memodb_client", setup.callers, "default", *jobs, "--at-once")
    assert client.ends() == 0, client.err
    assert answers(client) == [f"T did {each}" for each in jobs]
    worker.prints("at once 5")


def test_r70_a_stranger_says_goodbye_with_its_result(broker_setup: Start, programs: Programs, url: str) -> None:
    setup = broker_setup(url)
    worker = programs.stranger("memodb_worker", setup.workers, "default", "--name", "W", "--jobs", 2)
    client = programs.stranger("memodb_client", setup.callers, "default", "one", "two")
    assert client.ends() == 0, client.err
    assert worker.ends() == 0, worker.err
    assert worker.out.splitlines()[-1].startswith("disconnect ")
    assert count_workers(setup) == 0


def test_a_stranger_that_waits_gets_heartbeats_and_stays(broker_setup: Start, programs: Programs, url: str) -> None:
    setup = broker_setup(f"{url}?heartbeat_after=0.05&heartbeat_timeout=5")
    worker = programs.stranger("memodb_worker", setup.workers, "default", "--name", "W")
    worker.prints("heartbeat", times=5)
    client = programs.stranger("memodb_client", setup.callers, "default", "job")
    assert client.ends() == 0, client.err
    ids = {line.split()[1] for line in worker.out.splitlines() if line.startswith(("heartbeat", "job "))} - {"default"}
    assert len(ids) == 1
    assert "ready again" not in worker.out


def test_a_worker_that_answers_no_heartbeat_is_gone(broker_setup: Start) -> None:
    setup = broker_setup(f"{TCP}?heartbeat_after=0.1&heartbeat_timeout=0.2")
    with Plain(setup.workers) as mute:
        mute.greeted().ask(memo(READY, b"", ["default"]))
        kind, id, _, _ = read(mute.answer()[1])
        assert kind == HEARTBEAT
        until(lambda: count_workers(setup) == 0, "it is gone")
        mute.ask(memo(HEARTBEAT, id))
        assert read(mute.answer()[1])[:2] == (DISCONNECT, id)


def test_sp_has_no_life_sign_so_a_parked_worker_is_not_missed(broker_setup: Start) -> None:
    """D12 is for carriers that have one."""
    setup = broker_setup(f"{TCP}?carrier_ping=0.05&carrier_timeout=0.1&heartbeat_after=0.8")
    with Plain(setup.workers) as parked:
        parked.greeted().ask(memo(READY, b"", ["default"]))
        assert read(parked.answer()[1])[0] == HEARTBEAT
    assert setup.counters.bad_messages == {}


# -------------------------------------------------------------------- two dialects in one broker


def test_a_memodb_caller_is_served_by_a_pingpong_worker(
    broker_setup: Start, programs: Programs, visitors: Visitors
) -> None:
    setup = broker_setup(*BOTH)
    with Workers(visitors, setup.places[1]["workers"], do=lambda each: b"pong " + each):
        client = programs.stranger("memodb_client", setup.callers, "default", "one", "two")
        assert client.ends() == 0, client.err
    assert answers(client) == ["pong one", "pong two"]


def test_a_pingpong_caller_is_served_by_a_memodb_worker(
    broker_setup: Start, programs: Programs, visitors: Visitors
) -> None:
    setup = broker_setup(*BOTH)
    programs.stranger("memodb_worker", setup.workers, "default", "--name", "W")
    caller = visitors.visit(zmq.DEALER, setup.places[1]["callers"])
    for payload in (b"one", b"", b"PONG", bytes(MIB)):
        caller.send_multipart([b"", payload])
        assert caller.recv_multipart() == [b"", b"W did " + payload]


def test_when_a_memodb_worker_dies_a_pingpong_caller_is_told(
    broker_setup: Start, programs: Programs, visitors: Visitors
) -> None:
    setup = broker_setup(f"{TCP}?detach_timeout=0.3", BOTH[1])
    worker = programs.stranger("memodb_worker", setup.workers, "default")
    caller = visitors.visit(zmq.DEALER, setup.places[1]["callers"])
    caller.send_multipart([b"", b"sleep 60"])
    worker.prints("job default sleep")
    worker.kill()
    assert caller.recv_multipart() == [b"", b"", b"ERROR", b"lost: its worker was out of reach for 0.3 s"]


def test_r68_when_a_memodb_worker_gives_a_job_up_a_pingpong_caller_is_told(
    broker_setup: Start, visitors: Visitors
) -> None:
    """A HEARTBEAT where a RESULT is due: that worker's word for failure."""
    setup = broker_setup(*BOTH)
    caller = visitors.visit(zmq.DEALER, setup.places[1]["callers"])
    with Plain(setup.workers) as worker:
        worker.greeted().ask(memo(READY, b"", ["default"]))
        caller.send_multipart([b"", b"job"])
        kind, id, fields, payload = read(worker.answer()[1])
        assert (kind, fields[0], payload) == (JOB, "default", b"job")
        worker.ask(memo(HEARTBEAT, id))
        assert read(worker.answer()[1])[:2] == (DISCONNECT, id)
        *_, word, reason = caller.recv_multipart()
        assert (word, reason) == (b"ERROR", b"lost: its worker sent HEARTBEAT instead of a result")


def test_r73_when_a_pingpong_worker_dies_a_memodb_caller_hears_nothing(broker_setup: Start, visitors: Visitors) -> None:
    setup = broker_setup(*BOTH)
    doomed = visitors.visit(zmq.DEALER, setup.places[1]["workers"])
    doomed.send_multipart([b"", b"READY"])
    assert doomed.recv_multipart() == [b"", b"PONG"]
    with Plain(setup.callers) as caller:
        caller.greeted().ask(job(b"first"))
        assert doomed.recv_multipart() == [b"", b"first"]
        doomed.close()
        until(lambda: silent(setup) == {"lost": 1}, "its call has ended in silence")
        with Workers(visitors, setup.places[1]["workers"]):
            second = caller.ask(job(b"second"))
            assert caller.answer() == (second, memo(RESULT, b"", payload=b"second"))


def test_r73_the_callers_nng_asks_again_and_another_worker_does_it(
    broker_setup: Start, programs: Programs, nngs: Nngs
) -> None:
    """The document on missing replies: the client should eventually time out and retry the request."""
    setup = broker_setup(f"{TCP}?detach_timeout=0.1")
    doomed = programs.stranger("memodb_worker", setup.workers, "default")
    caller = nngs.dial(setup.callers, resend=300)
    caller.send(job(b"sleep 1.5"))
    doomed.prints("job default sleep")
    doomed.kill()
    until(lambda: silent(setup) == {"lost": 1}, "its call has ended in silence")
    programs.stranger("memodb_worker", setup.workers, "default", "--name", "B")
    assert result_of(caller.recv()) == b"B did sleep 1.5"
    assert setup.counters.accepted == 2


# -------------------------------------------------------------------- sizes


def test_every_size_passes_from_libnng_to_our_worker_and_back(
    broker_setup: Start, programs: Programs, nngs: Nngs, url: str
) -> None:
    setup = broker_setup(url)
    programs.dragoman(
        "worker", "--concurrency", 1, "--exec", "cat", "--service", "cat", "--connect", f"memodb+{setup.workers}"
    )
    caller = nngs.dial(setup.callers)
    for payload in PAYLOADS:
        caller.send(job(payload, "cat"))
        assert result_of(caller.recv()) == payload


def test_every_size_passes_from_our_call_to_a_stranger_and_back(
    broker_setup: Start, programs: Programs, url: str
) -> None:
    setup = broker_setup(url)
    programs.stranger("memodb_worker", setup.workers, "default", "--name", "W")
    for payload in (b"", b"x", bytes(16 * MIB)):
        done = programs.run("call", "default", "-", "--connect", f"memodb+{setup.callers}", given=payload)
        assert done.ends() == 0, done.err
        assert done.out_bytes == b"W did " + payload
