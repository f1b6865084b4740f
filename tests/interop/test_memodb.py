"""A whole broker among strangers that speak MemoDB: on libnng, as nngcat, and on plain sockets, over TCP and ipc.

Whatever is written here as CBOR is written by cbor2. Traps of pynng: contexts must be closed before their socket, and
take its options over when they are made.
"""

from __future__ import annotations

import asyncio
import io
import queue
import random
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import cbor2
import pynng
import pytest
import zmq
from house import MIB, BrokerHouse, Raw, Visitors, Workers, place_of
from pynng.nng import MsOption

from dragoman.carriers.sp import Sp
from dragoman.core.states import BUSY, DETACHED, IDLE, WAITING, WorkerState
from dragoman.sdk.address import UnixPlace
from dragoman.server import clock
from programs import PATIENCE, Program, Programs, until

READY, JOB, RESULT, HEARTBEAT, DISCONNECT = range(1, 6)
PAYLOADS = [b"", b"x", b"m" * 16_384, b"L" * 65_533, bytes(MIB), bytes(range(256)) * 65_536]
NO_RESEND = 3_600_000

Start = Callable[..., BrokerHouse]


@pytest.fixture(params=["tcp", "tcp6", "ipc"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    places = {"tcp": "tcp://127.0.0.1:0", "tcp6": "tcp://[::1]:0", "ipc": f"ipc://{tmp_path}/s"}
    return f"memodb+{places[request.param]}"


@pytest.fixture(params=["tcp", "ipc"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memodb+{'tcp://127.0.0.1:0' if request.param == 'tcp' else f'ipc://{tmp_path}/s'}"


TCP = "memodb+tcp://127.0.0.1:0"
BOTH = (TCP, "pingpong+tcp://127.0.0.1:0?frontend=0")


def memo(*items: object, payload: bytes = b"") -> bytes:
    return cbor2.dumps(["memo01", *items], canonical=True) + payload


def job(payload: bytes, service: str = "default", timeout: int = 60_000) -> bytes:
    return memo(JOB, b"", service, timeout, payload=payload)


def read(message: bytes) -> tuple[int, bytes, list[Any], bytes]:
    """Type, id, what follows, payload."""
    stream = io.BytesIO(message)
    version, kind, id, *fields = cbor2.CBORDecoder(stream).decode()
    assert version == "memo01"
    return kind, id, fields, stream.read()


def result_of(message: bytes) -> bytes:
    kind, id, fields, payload = read(message)
    assert (kind, id, fields) == (RESULT, b"", [])
    return payload


class Req(pynng.Req0):
    resend_tick = MsOption("req:resend-tick")


class Nngs:
    """Sockets and contexts of libnng that never wait for ever and end with the test, in the order that libnng needs."""

    def __init__(self) -> None:
        self._ends = ExitStack()

    def close(self) -> None:
        self._ends.close()

    def dial(self, where: str, *, resend: int = NO_RESEND) -> Any:
        """`resend` in milliseconds."""
        patience = int(PATIENCE * 1000)
        made = Req(recv_timeout=patience, send_timeout=patience, resend_time=resend, recv_max_size=0)
        self._ends.callback(made.close)
        made.resend_tick = min(1000, max(1, resend // 10))
        made.reconnect_time_min = made.reconnect_time_max = 20
        made.dial(where, block=True)
        return made

    def contexts(self, made: Any, count: int) -> list[Any]:
        return [self._ends.enter_context(made.new_context()) for _ in range(count)]

    def work(self, where: str, count: int = 1, services: tuple[str, ...] = ("default",), **options: Any) -> Crew:
        crew = Crew(self.contexts(self.dial(where, **options), count), services)
        self._ends.callback(crew.close)
        return crew


class Crew:
    """Workers of libnng, a thread and a context each. They do what the strangers' workers do."""

    def __init__(self, contexts: list[Any], services: tuple[str, ...]) -> None:
        self.heard: queue.Queue[tuple[int, bytes]] = queue.Queue()  # type and id of every answer
        self.done: list[bytes] = []  # payloads, as they came
        self._is_over = False
        self._services = list(services)
        self._contexts = contexts
        self._threads = [threading.Thread(target=self._live, args=(each,), name="crew") for each in contexts]
        for each in self._threads:
            each.start()

    def close(self) -> None:
        self._is_over = True
        for context in self._contexts:
            context.close()
        for each in self._threads:
            each.join(PATIENCE)
            assert not each.is_alive()

    def _live(self, context: Any) -> None:
        request = memo(READY, b"", self._services)
        while True:
            try:
                context.send(request)
                kind, id, _, payload = read(context.recv())
            except Exception:  # closed under its hands; pynng says so in several ways
                if self._is_over:
                    return
                raise
            self.heard.put((kind, id))
            if kind == JOB:
                self.done.append(payload)
                words = payload[:40].split()
                if words[:1] == [b"sleep"]:
                    time.sleep(float(words[1]))
                big = words[:1] == [b"size"]
                request = memo(RESULT, id, payload=b"x" * int(words[1]) if big else b"did " + payload)
            elif kind == HEARTBEAT:
                request = memo(HEARTBEAT, id)
            else:
                request = memo(READY, b"", self._services)


@pytest.fixture
def nngs() -> Iterator[Nngs]:
    nngs = Nngs()
    yield nngs
    nngs.close()


class Plain(Raw):
    """A REQ on a plain socket, which repeats nothing and waits for nothing by itself."""

    def __init__(self, where: str, receive_buffer: int = 0) -> None:
        super().__init__(where, receive_buffer)
        self._mark = b"\x01" if isinstance(place_of(where), UnixPlace) else b""
        self._number = 0

    def greeted(self) -> Plain:
        self.say(b"\0SP\0\0\x30\0\0")
        assert self.take(8) == b"\0SP\0\0\x31\0\0"
        return self

    def ask(self, message: bytes, request: bytes = b"") -> bytes:
        """Returns the request id."""
        self._number += 1
        request = request or (0x8000_0000 | self._number).to_bytes(4, "big")
        self.write(request + message)
        return request

    def write(self, body: bytes) -> None:
        self.say(self._mark + len(body).to_bytes(8, "big") + body)

    def answer(self) -> tuple[bytes, bytes]:
        """Request id and message of the next one."""
        assert self.take(len(self._mark)) == self._mark
        body = self.take(int.from_bytes(self.take(8), "big"))
        return body[:4], body[4:]


def count_workers(house: BrokerHouse, state: WorkerState | None = None) -> int:
    def count() -> int:
        return sum(state is None or worker.state is state for worker in house.broker.roster.workers.values())

    return int(house.run(count))


def count_jobs(house: BrokerHouse, state: object) -> int:
    return int(house.run(lambda: sum(job.state is state for job in house.broker.jobs.values())))


def joined(house: BrokerHouse, count: int = 1) -> None:
    until(lambda: count_workers(house, IDLE) >= count, f"{count} workers are there and idle")


def silent(house: BrokerHouse) -> dict[str, int]:
    return {str(outcome): count for outcome, count in house.counters.silent_endings.items()}


def tap(house: BrokerHouse, kind: int) -> list[bytes]:
    """The routes of all messages of this type that the broker hears from now on."""
    session = house.line.sessions[0]
    heard: list[bytes] = []
    hear = session.hear

    def listen(peer: Any, message: Any, now: float) -> None:
        if read(bytes(message[1]))[0] == kind:
            heard.append(bytes(message[0]))
        hear(peer, message, now)

    house.run(setattr, session, "hear", listen)
    return heard


# -------------------------------------------------------------------- strangers among themselves


def test_a_strangers_calls_are_answered_by_a_stranger(broker_house: Start, programs: Programs, any_url: str) -> None:
    house = broker_house(any_url)
    programs.stranger("memodb_worker", house.workers, "echo", "--name", "W")
    client = programs.stranger("memodb_client", house.callers, "echo", "one", "two", "three")
    assert client.ends() == 0, client.err
    assert answers(client) == ["W did one", "W did two", "W did three"]


def answers(client: Program) -> list[str]:
    return [line.removeprefix("answer ") for line in client.out.splitlines() if line.startswith("answer ")]


def test_a_stranger_serves_several_services_and_no_other(broker_house: Start, programs: Programs) -> None:
    house = broker_house(f"{TCP}?queue_timeout=0.3")
    worker = programs.stranger("memodb_worker", house.workers, "red", "green", "blue", "--name", "W")
    for service in ("green", "red", "blue"):
        client = programs.stranger("memodb_client", house.callers, service, service)
        assert client.ends() == 0, client.err
        worker.prints(f"job {service} {service}")
    other = programs.stranger("memodb_client", house.callers, "yellow", "x", "--patience", 1)
    assert other.ends() == 1
    assert "gave up x" in other.out
    assert "yellow" not in worker.out
    assert silent(house) == {"timed out": 1}


def test_a_strangers_threads_share_one_connection_and_work_at_once(
    broker_house: Start, programs: Programs, any_url: str
) -> None:
    house = broker_house(any_url)
    worker = programs.stranger("memodb_threads_worker", house.workers, "default", "--workers", 5, "--name", "T")
    joined(house, 5)
    assert len(house.line.connections.peers) == 1
    jobs = [f"sleep 0.5 {number}" for number in range(5)]
    client = programs.stranger("memodb_client", house.callers, "default", *jobs, "--at-once")
    assert client.ends() == 0, client.err
    assert answers(client) == [f"T did {each}" for each in jobs]
    worker.prints("at once 5")


def test_r70_a_stranger_says_goodbye_with_its_result(broker_house: Start, programs: Programs, url: str) -> None:
    house = broker_house(url)
    worker = programs.stranger("memodb_worker", house.workers, "default", "--name", "W", "--jobs", 2)
    client = programs.stranger("memodb_client", house.callers, "default", "one", "two")
    assert client.ends() == 0, client.err
    assert worker.ends() == 0, worker.err
    assert worker.out.splitlines()[-1].startswith("disconnect ")
    assert count_workers(house) == 0


def test_a_stranger_that_waits_gets_heartbeats_and_stays(broker_house: Start, programs: Programs, url: str) -> None:
    house = broker_house(f"{url}?heartbeat_after=0.05&heartbeat_timeout=5")
    worker = programs.stranger("memodb_worker", house.workers, "default", "--name", "W")
    worker.prints("heartbeat", times=5)
    client = programs.stranger("memodb_client", house.callers, "default", "job")
    assert client.ends() == 0, client.err
    ids = {line.split()[1] for line in worker.out.splitlines() if line.startswith(("heartbeat", "job "))} - {"default"}
    assert len(ids) == 1
    assert "ready again" not in worker.out


def test_a_worker_that_answers_no_heartbeat_is_gone(broker_house: Start) -> None:
    house = broker_house(f"{TCP}?heartbeat_after=0.1&heartbeat_timeout=0.2")
    with Plain(house.workers) as mute:
        mute.greeted().ask(memo(READY, b"", ["default"]))
        kind, id, _, _ = read(mute.answer()[1])
        assert kind == HEARTBEAT
        until(lambda: count_workers(house) == 0, "it is gone")
        mute.ask(memo(HEARTBEAT, id))
        assert read(mute.answer()[1])[:2] == (DISCONNECT, id)


def test_sp_has_no_life_sign_so_a_parked_worker_is_not_missed(broker_house: Start) -> None:
    """D12 is for carriers that have one."""
    house = broker_house(f"{TCP}?carrier_ping=0.05&carrier_timeout=0.1&heartbeat_after=0.8")
    with Plain(house.workers) as parked:
        parked.greeted().ask(memo(READY, b"", ["default"]))
        assert read(parked.answer()[1])[0] == HEARTBEAT
    assert house.counters.bad_messages == {}


# -------------------------------------------------------------------- two peoples in one broker


def test_a_memodb_caller_is_served_by_a_pingpong_worker(
    broker_house: Start, programs: Programs, visitors: Visitors
) -> None:
    house = broker_house(*BOTH)
    with Workers(visitors, house.places[1]["workers"], do=lambda each: b"pong " + each):
        client = programs.stranger("memodb_client", house.callers, "default", "one", "two")
        assert client.ends() == 0, client.err
    assert answers(client) == ["pong one", "pong two"]


def test_a_pingpong_caller_is_served_by_a_memodb_worker(
    broker_house: Start, programs: Programs, visitors: Visitors
) -> None:
    house = broker_house(*BOTH)
    programs.stranger("memodb_worker", house.workers, "default", "--name", "W")
    caller = visitors.visit(zmq.DEALER, house.places[1]["callers"])
    for payload in (b"one", b"", b"PONG", bytes(MIB)):
        caller.send_multipart([b"", payload])
        assert caller.recv_multipart() == [b"", b"W did " + payload]


def test_when_a_memodb_worker_dies_a_pingpong_caller_is_told(
    broker_house: Start, programs: Programs, visitors: Visitors
) -> None:
    house = broker_house(f"{TCP}?detach_timeout=0.3", BOTH[1])
    worker = programs.stranger("memodb_worker", house.workers, "default")
    caller = visitors.visit(zmq.DEALER, house.places[1]["callers"])
    caller.send_multipart([b"", b"sleep 60"])
    worker.prints("job default sleep")
    worker.kill()
    assert caller.recv_multipart() == [b"", b"", b"ERROR", b"lost: its worker was out of reach for 0.3 s"]


def test_r68_when_a_memodb_worker_gives_a_job_up_a_pingpong_caller_is_told(
    broker_house: Start, visitors: Visitors
) -> None:
    """A HEARTBEAT where a RESULT is due: that worker's word for failure."""
    house = broker_house(*BOTH)
    caller = visitors.visit(zmq.DEALER, house.places[1]["callers"])
    with Plain(house.workers) as worker:
        worker.greeted().ask(memo(READY, b"", ["default"]))
        caller.send_multipart([b"", b"job"])
        kind, id, fields, payload = read(worker.answer()[1])
        assert (kind, fields[0], payload) == (JOB, "default", b"job")
        worker.ask(memo(HEARTBEAT, id))
        assert read(worker.answer()[1])[:2] == (DISCONNECT, id)
        *_, word, reason = caller.recv_multipart()
        assert (word, reason) == (b"ERROR", b"lost: its worker gave it up: HEARTBEAT instead of a result")


def test_r73_when_a_pingpong_worker_dies_a_memodb_caller_hears_nothing(broker_house: Start, visitors: Visitors) -> None:
    house = broker_house(*BOTH)
    doomed = visitors.visit(zmq.DEALER, house.places[1]["workers"])
    doomed.send_multipart([b"", b"READY"])
    assert doomed.recv_multipart() == [b"", b"PONG"]
    with Plain(house.callers) as caller:
        caller.greeted().ask(job(b"first"))
        assert doomed.recv_multipart() == [b"", b"first"]
        doomed.close()
        until(lambda: silent(house) == {"lost": 1}, "its call has ended in silence")
        with Workers(visitors, house.places[1]["workers"]):
            second = caller.ask(job(b"second"))
            assert caller.answer() == (second, memo(RESULT, b"", payload=b"second"))


def test_r73_the_callers_nng_asks_again_and_another_worker_does_it(
    broker_house: Start, programs: Programs, nngs: Nngs
) -> None:
    """What the document means by silence: the client should eventually time out and retry the request."""
    house = broker_house(f"{TCP}?detach_timeout=0.1")
    doomed = programs.stranger("memodb_worker", house.workers, "default")
    caller = nngs.dial(house.callers, resend=300)
    caller.send(job(b"sleep 1.5"))
    doomed.prints("job default sleep")
    doomed.kill()
    until(lambda: silent(house) == {"lost": 1}, "its call has ended in silence")
    programs.stranger("memodb_worker", house.workers, "default", "--name", "B")
    assert result_of(caller.recv()) == b"B did sleep 1.5"
    assert house.counters.accepted == 2


# -------------------------------------------------------------------- NNG repeats itself


@pytest.mark.parametrize(("resend", "seconds"), [(100, 1.5), (1000, 5)])
def test_r62_a_slow_job_with_an_impatient_caller_runs_once(
    broker_house: Start, nngs: Nngs, resend: int, seconds: float
) -> None:
    house = broker_house(TCP)
    asked = tap(house, JOB)
    crew = nngs.work(house.workers, 2, resend=resend)
    joined(house, 2)
    caller = nngs.dial(house.callers, resend=resend)
    caller.send(job(b"sleep %g" % seconds))
    assert result_of(caller.recv()) == b"did sleep %g" % seconds
    assert crew.done == [b"sleep %g" % seconds]
    assert len(asked) >= 3
    assert len(set(asked)) == 1
    assert (house.counters.accepted, house.counters.handed_out) == (1, 1)


def test_r61_a_ready_that_is_repeated_is_one_worker(broker_house: Start, nngs: Nngs, url: str) -> None:
    house = broker_house(url)
    said = tap(house, READY)
    crew = nngs.work(house.workers, 3, resend=40)
    until(lambda: len(said) >= 15, "each has said READY five times")
    assert count_workers(house) == count_workers(house, IDLE) == 3
    caller = nngs.dial(house.callers)
    for number in range(9):
        caller.send(job(b"%d" % number))
        assert result_of(caller.recv()) == b"did %d" % number
    assert sorted(crew.done) == [b"%d" % number for number in range(9)]
    assert count_workers(house) == 3


def test_r60_results_that_are_repeated_are_booked_once(broker_house: Start, nngs: Nngs) -> None:
    """The worker waits for its next job with its last RESULT, which is repeated meanwhile."""
    house = broker_house(TCP)
    said = tap(house, RESULT)
    nngs.work(house.workers, resend=30)
    caller = nngs.dial(house.callers)
    for number in range(3):
        caller.send(job(b"%d" % number))
        assert result_of(caller.recv()) == b"did %d" % number
        until(lambda number=number: len(said) >= 4 * (number + 1), "its RESULT came again and again")
    assert house.counters.late_results == 0
    assert count_workers(house, IDLE) == 1


def test_r60_r62_all_of_them_repeat_themselves_all_the_time_and_nothing_runs_twice(
    broker_house: Start, nngs: Nngs, url: str
) -> None:
    house = broker_house(url)
    # Each request is repeated while its job runs; more often, and a busy machine does nothing but repeat.
    crew = nngs.work(house.workers, 10, resend=100)
    callers = nngs.contexts(nngs.dial(house.callers, resend=100), 10)
    for turn in range(8):
        for number, caller in enumerate(callers):
            caller.send(job(b"sleep 0.25 %d %d" % (turn, number)))
        for number, caller in enumerate(callers):
            assert result_of(caller.recv()) == b"did sleep 0.25 %d %d" % (turn, number)
    assert len(crew.done) == len(set(crew.done)) == 80


# -------------------------------------------------------------------- connections and brokers come and go


def again(broker_house: Start, house: BrokerHouse, options: str = "") -> BrokerHouse:
    """Another broker in the same place."""
    house.close()
    return broker_house(f"memodb+{house.workers}{options}")


def test_workers_and_callers_find_a_broker_that_was_started_again(
    broker_house: Start, programs: Programs, nngs: Nngs, any_url: str
) -> None:
    house = broker_house(any_url)
    worker = programs.stranger("memodb_worker", house.workers, "default", "--name", "W")
    caller = nngs.dial(house.callers)
    caller.send(job(b"one"))
    assert result_of(caller.recv()) == b"W did one"
    second = again(broker_house, house)
    caller.send(job(b"two"))
    assert result_of(caller.recv()) == b"W did two"
    worker.prints("disconnect")  # its RESULT came again, under an id that nobody knew
    worker.prints("ready again")
    assert count_workers(second) == 1


def test_workers_that_were_parked_with_a_ready_are_workers_of_the_next_broker(
    broker_house: Start, nngs: Nngs, url: str
) -> None:
    house = broker_house(url)
    crew = nngs.work(house.workers, 5)
    joined(house, 5)
    second = again(broker_house, house)
    joined(second, 5)
    caller = nngs.dial(second.callers)
    caller.send(job(b"job"))
    assert result_of(caller.recv()) == b"did job"
    assert [kind for kind, _ in list(crew.heard.queue)] == [JOB]


def test_a_call_under_way_is_done_by_the_next_broker(broker_house: Start, nngs: Nngs) -> None:
    """The job's first result is of no use any more: its worker is told to start anew, and the caller's NNG asks."""
    house = broker_house(TCP)
    crew = nngs.work(house.workers)
    caller = nngs.dial(house.callers)
    caller.send(job(b"sleep 0.5 x"))
    until(lambda: crew.done, "it is at work")
    again(broker_house, house)
    assert result_of(caller.recv()) == b"did sleep 0.5 x"
    assert crew.done == [b"sleep 0.5 x"] * 2
    assert [kind for kind, _ in list(crew.heard.queue)[:3]] == [JOB, DISCONNECT, JOB]


def test_r64_a_connection_that_is_cut_in_mid_job_costs_nothing(broker_house: Start, nngs: Nngs, url: str) -> None:
    house = broker_house(url)
    crew = nngs.work(house.workers, 4)
    joined(house, 4)
    callers = nngs.contexts(nngs.dial(house.callers), 6)
    for number, caller in enumerate(callers):
        caller.send(job(b"sleep 0.4 %d" % number))
    until(lambda: len(crew.done) == 4, "all are at work, and two calls wait")
    for peer in house.run(lambda: list(house.line.connections.peers)):
        house.run(house.line.connections.close, peer, "the test wants it")
    for number, caller in enumerate(callers):
        assert result_of(caller.recv()) == b"did sleep 0.4 %d" % number
    assert len(crew.done) == len(set(crew.done)) == 6
    assert count_workers(house) == 4


def test_a_worker_killed_in_mid_job_is_detached_and_then_lost(broker_house: Start, programs: Programs) -> None:
    house = broker_house(f"{TCP}?detach_timeout=0.6")
    doomed = programs.stranger("memodb_worker", house.workers, "default")
    with Plain(house.callers) as caller:
        caller.greeted().ask(job(b"sleep 60"))
        doomed.prints("job default sleep")
        assert count_workers(house, BUSY) == 1
        doomed.kill()
        until(lambda: house.journal.mentions("connection lost", "info"), "the broker has noticed")
        assert silent(house) == {}
        until(lambda: silent(house) == {"lost": 1}, "and given it up")
        assert count_workers(house) == 0
        assert house.counters.expired_workers == 1


def test_r9_with_attempts_left_the_killed_workers_job_goes_to_another(
    broker_house: Start, programs: Programs, nngs: Nngs
) -> None:
    house = broker_house(f"{TCP}?detach_timeout=0.2&attempts=2")
    doomed = programs.stranger("memodb_worker", house.workers, "default")
    caller = nngs.dial(house.callers)
    caller.send(job(b"sleep 0.6"))
    doomed.prints("job default sleep")
    crew = nngs.work(house.workers)
    joined(house)
    doomed.kill()
    assert result_of(caller.recv()) == b"did sleep 0.6"
    assert crew.done == [b"sleep 0.6"]


def test_a_detached_worker_gets_nothing_and_is_forgotten_if_it_was_idle(
    broker_house: Start, programs: Programs, nngs: Nngs
) -> None:
    house = broker_house(f"{TCP}?heartbeat_after=0.5&heartbeat_timeout=0.5&detach_timeout=1")
    doomed = programs.stranger("memodb_worker", house.workers, "default")
    joined(house)
    doomed.kill()
    until(lambda: house.journal.mentions("connection lost", "info"), "the broker has noticed")
    assert count_workers(house, DETACHED) == 1
    caller = nngs.dial(house.callers)
    caller.send(job(b"job"))
    until(lambda: count_jobs(house, WAITING) == 1, "the job waits")
    until(lambda: count_workers(house) == 0, "the worker is forgotten")
    nngs.work(house.workers)
    assert result_of(caller.recv()) == b"did job"


def test_connections_that_are_cut_all_the_time_cost_no_call_and_double_none(broker_house: Start, nngs: Nngs) -> None:
    house = broker_house(f"{TCP}?detach_timeout=10")
    crew = nngs.work(house.workers, 6, resend=100)
    joined(house, 6)
    callers = nngs.contexts(nngs.dial(house.callers, resend=100), 8)
    chance = random.Random(5)

    def cut() -> None:
        peers = list(house.line.connections.peers)
        if peers:
            house.line.connections.close(chance.choice(peers), "the test wants it")

    for turn in range(25):
        for number, caller in enumerate(callers):
            caller.send(job(b"sleep %.3f %d %d" % (chance.random() / 50, turn, number)))
            if chance.random() < 0.3:
                house.run(cut)
        for number, caller in enumerate(callers):
            assert result_of(caller.recv()).endswith(b" %d %d" % (turn, number))
            if chance.random() < 0.2:
                house.run(cut)
    assert len(crew.done) == len(set(crew.done)) == 200
    assert house.counters.accepted == 200
    assert silent(house) == {}


# -------------------------------------------------------------------- sizes


def test_every_size_passes_from_libnng_to_our_worker_and_back(
    broker_house: Start, programs: Programs, nngs: Nngs, url: str
) -> None:
    house = broker_house(url)
    programs.dragoman(
        "worker", "--concurrency", 1, "--exec", "cat", "--service", "cat", "--connect", f"memodb+{house.workers}"
    )
    caller = nngs.dial(house.callers)
    for payload in PAYLOADS:
        caller.send(job(payload, "cat"))
        assert result_of(caller.recv()) == payload


def test_every_size_passes_from_our_call_to_a_stranger_and_back(
    broker_house: Start, programs: Programs, url: str
) -> None:
    house = broker_house(url)
    programs.stranger("memodb_worker", house.workers, "default", "--name", "W")
    for payload in (b"", b"x", bytes(16 * MIB)):
        done = programs.run("call", "default", "-", "--connect", f"memodb+{house.callers}", given=payload)
        assert done.ends() == 0, done.err
        assert done.out_bytes == b"W did " + payload


# -------------------------------------------------------------------- peers that do harm


def test_r17_a_peer_that_stops_reading_is_let_go_and_harms_nobody(broker_house: Start, nngs: Nngs) -> None:
    house = broker_house(f"{TCP}?max_send_buffer=1MiB")
    nngs.work(house.workers, 4)
    joined(house, 4)
    with Plain(house.callers, receive_buffer=4096) as deaf:
        deaf.greeted()
        with suppress(ConnectionError):  # it may be let go while it asks
            for _ in range(30):
                deaf.ask(job(b"size %d" % MIB))
        until(lambda: house.counters.disconnected_slow == 1, "it is let go")
        honest = nngs.dial(house.callers)
        honest.send(job(b"size %d" % MIB))
        assert len(result_of(honest.recv())) == MIB


def garbage(where: str) -> Iterator[tuple[str, Plain]]:
    """Peers that have just said something bad, and under what reason it is counted."""
    for reason, said in (
        ("not sp", b"GET / HTTP/1.1\r\n\r\n"),
        ("not sp", b"\xff\0\0\0\0\0\0\0\x01\x7f"),
        ("protocol", b"\0SP\0\0\x31\0\0"),
    ):
        peer = Plain(where)
        peer.say(said)
        yield reason, peer
    peer = Plain(where).greeted()
    peer.say(b"\x01" * len(peer._mark) + b"\x7f" + b"\xff" * 7)
    yield "over max_payload", peer
    for reason, body in (
        ("no request id", b""),
        ("no request id", b"\0\0\0\1" * 20),
        ("truncated header", b"\x80\0\0\1"),
        ("not a memo01 header", b"\x80\0\0\1nonsense"),
        ("not a memo01 header", b"\x80\0\0\1\xff"),
        ("header too long", b"\x80\0\0\1\x85\x66memo01\x02\x5b\xff\xff\xff\xff\xff\xff\xff\xff"),
        ("wrong version", b"\x80\0\0\1" + cbor2.dumps(["memo02", READY, b"", ["a"]])),
        ("unknown type", b"\x80\0\0\1" + memo(6, b"")),
        ("bad service list", b"\x80\0\0\1" + memo(READY, b"", [])),
        ("bad service name", b"\x80\0\0\1" + memo(READY, b"", [""])),
        ("unwanted payload", b"\x80\0\0\1" + memo(READY, b"", ["a"], payload=b"x")),
        ("unwanted id", b"\x80\0\0\1" + memo(JOB, b"x", "a", 1)),
        ("not for us", b"\x80\0\0\1" + memo(DISCONNECT, b"")),
        ("bad timeout", b"\x80\0\0\1" + memo(JOB, b"", "a", -2)),
    ):
        peer = Plain(where).greeted()
        peer.write(body)
        yield reason, peer


def test_d6_whoever_says_something_bad_gets_no_answer_and_harms_nobody(
    broker_house: Start, nngs: Nngs, url: str
) -> None:
    house = broker_house(url)
    crew = nngs.work(house.workers)
    caller = nngs.dial(house.callers)
    reasons: Counter[str] = Counter()
    for reason, peer in garbage(house.callers):
        with peer:
            reasons[reason] += 1
            until(
                lambda reason=reason: house.bad(reason, "memodb") == reasons[reason],
                f"{reason} is counted: {house.counters.bad_messages}",
            )
            caller.send(job(b"honest"))
            assert result_of(caller.recv()) == b"did honest"
    assert len(crew.done) == reasons.total()
    assert sum(house.counters.bad_messages.values()) == reasons.total()


def test_d6_after_a_bad_message_the_same_peer_is_served(broker_house: Start, nngs: Nngs, url: str) -> None:
    house = broker_house(url)
    nngs.work(house.workers)
    with Plain(house.callers) as peer:
        peer.greeted()
        for _ in range(19):
            peer.ask(b"nonsense")
        request = peer.ask(job(b"job"))
        assert peer.answer() == (request, memo(RESULT, b"", payload=b"did job"))


def test_d6_twenty_bad_messages_end_the_connection(broker_house: Start, nngs: Nngs, url: str) -> None:
    house = broker_house(url)
    with Plain(house.callers) as peer:
        peer.greeted()
        for _ in range(20):
            peer.ask(b"nonsense")
        assert peer.rest() == b""
    nngs.work(house.workers)
    caller = nngs.dial(house.callers)
    caller.send(job(b"job"))
    assert result_of(caller.recv()) == b"did job"


def test_r66_a_result_under_an_id_that_nobody_has_gets_disconnect(broker_house: Start) -> None:
    house = broker_house(TCP)
    with Plain(house.workers) as forger:
        forger.greeted()
        for id in (b"", b"x", bytes(16), bytes(60)):
            request = forger.ask(memo(RESULT, id, payload=b"forged"))
            assert forger.answer() == (request, memo(DISCONNECT, id))


def test_a_job_of_an_nngcat_is_answered(
    broker_house: Start, programs: Programs, nngs: Nngs, any_url: str, tmp_path: Path
) -> None:
    nngcat = shutil.which("nngcat")
    assert nngcat, "nngcat is needed: it comes with NNG, in Debian as nng-utils"
    house = broker_house(any_url)
    nngs.work(house.workers, services=("echo",))
    (tmp_path / "job").write_bytes(bytes.fromhex("85666d656d6f3031024064 6563686f 191388") + b"hello")
    asker = programs.start(nngcat, "--req0", "--dial", house.callers, "--file", tmp_path / "job", "--raw")
    assert asker.ends() == 0, asker.err
    assert asker.out_bytes == bytes.fromhex("83666d656d6f30310340") + b"did hello"


# -------------------------------------------------------------------- slow and fast


def test_slow_jobs_and_fast_ones_side_by_side_each_with_its_own_time(broker_house: Start, nngs: Nngs) -> None:
    house = broker_house(TCP)
    slow = nngs.work(house.workers, 3, services=("slow",))
    nngs.work(house.workers, 3, services=("fast",))
    joined(house, 6)
    callers = nngs.dial(house.callers)
    patient, hasty = nngs.contexts(callers, 3), nngs.contexts(callers, 3)
    for caller in patient:
        caller.send(job(b"sleep 1.5", "slow", timeout=30_000))
    until(lambda: len(slow.done) == 3, "the slow ones are at work")
    fast = 0
    while count_workers(house, BUSY) >= 3 and fast < 100:
        for caller in hasty:
            caller.send(job(b"%d" % fast, "fast", timeout=300))
        for caller in hasty:
            assert result_of(caller.recv()) == b"did %d" % fast
        fast += 1
    assert fast >= 20
    assert [result_of(caller.recv()) for caller in patient] == [b"did sleep 1.5"] * 3
    assert silent(house) == {}


def test_r71_a_fast_job_that_overruns_its_short_time_ends_while_the_slow_one_goes_on(
    broker_house: Start, nngs: Nngs
) -> None:
    house = broker_house(TCP)
    crew = nngs.work(house.workers, 2, services=("slow", "fast"))
    joined(house, 2)
    with Plain(house.callers) as caller:
        caller.greeted()
        slow = caller.ask(job(b"sleep 1.0 slow", "slow", timeout=30_000))
        caller.ask(job(b"sleep 0.8 fast", "fast", timeout=200))
        until(lambda: silent(house) == {"timed out": 1}, "the fast one is given up")
        assert caller.answer() == (slow, memo(RESULT, b"", payload=b"did sleep 1.0 slow"))
        joined(house, 2)
        assert house.counters.late_results == 1
        again = caller.ask(job(b"next", "fast", timeout=200))
        assert caller.answer() == (again, memo(RESULT, b"", payload=b"did next"))
    assert DISCONNECT in [kind for kind, _ in list(crew.heard.queue)]


# -------------------------------------------------------------------- many at once


def test_fifty_workers_and_fifty_callers_of_libnng_over_two_connections(broker_house: Start, nngs: Nngs) -> None:
    house = broker_house(TCP, strict=False)
    crew = nngs.work(house.workers, 50)
    joined(house, 50)
    callers = nngs.contexts(nngs.dial(house.callers), 50)
    for turn in range(20):
        for number, caller in enumerate(callers):
            caller.send(job(b"%d of %d" % (turn, number)))
        for number, caller in enumerate(callers):
            assert result_of(caller.recv()) == b"did %d of %d" % (turn, number)
    assert len(crew.done) == len(set(crew.done)) == 1000
    assert len(house.line.connections.peers) == 2


WORKERS = CALLERS = 500
CONNECTIONS = 10
JOBS = 50_000


class Crowd(asyncio.Protocol):
    """Workers and callers on one connection, each with a request of its own in flight."""

    def __init__(self, name: int, share: int, seen: Counter[bytes], over: asyncio.Event) -> None:
        self.name = name
        self.seen = seen  # by all crowds: how often each job was given to a worker
        self.answered = 0
        self.wrong: list[bytes] = []
        self.lost = False
        self._left = share  # calls to be made
        self._unanswered = share
        self._sp = Sp("REQ")
        self._requests = 0
        self._calls: dict[bytes, bytes] = {}  # what each caller asked, by its request id
        self._workers: dict[bytes, None] = {}
        self._over = over

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.writelines(self._sp.outgoing)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self._over.set()

    def begin(self, workers: int, callers: int) -> None:
        for _ in range(workers):
            self._workers[self._ask([memo(READY, b"", ["load"])])] = None
        for _ in range(callers):
            self._call()

    def data_received(self, data: bytes) -> None:
        out: list[bytes] = []
        for message in self._sp.feed(data):
            request, body = bytes(message[0]), bytes(message[1])
            if request in self._calls:
                asked = self._calls.pop(request)
                if body != RESULT_HEADER + b"did " + asked:
                    self.wrong.append(body)
                self.answered += 1
                if self._left:
                    self._call(out)
                elif self.answered == self._unanswered:
                    self._over.set()
            else:
                del self._workers[request]
                kind, id, _, payload = read(body)
                if kind == JOB:
                    self.seen[payload] += 1
                    said = memo(RESULT, id, payload=b"did " + payload)
                else:
                    assert kind == HEARTBEAT
                    said = memo(HEARTBEAT, id)
                self._workers[self._ask([said], out)] = None
        self._transport.writelines(out)

    def _call(self, out: list[bytes] | None = None) -> None:
        payload = b"%d/%d" % (self.name, self._left)
        self._left -= 1
        self._calls[self._ask([LOAD_HEADER, payload], out)] = payload

    def _ask(self, frames: list[bytes], out: list[bytes] | None = None) -> bytes:
        self._requests += 1
        request = (0x8000_0000 | self._requests).to_bytes(4, "big")
        encoded = self._sp.encode([request, *frames])
        if out is None:
            self._transport.writelines(encoded)
        else:
            out += encoded  # type: ignore[arg-type]
        return request


LOAD_HEADER = job(b"", "load")
RESULT_HEADER = memo(RESULT, b"")


def test_r76_a_thousand_parked_at_once_and_fifty_thousand_jobs_none_lost_or_doubled(broker_house: Start) -> None:
    house = broker_house(TCP, strict=False)
    seen: Counter[bytes] = Counter()
    house.run(house.broker.pause, "load")

    def parked() -> bool:
        return count_workers(house, IDLE) == WORKERS and count_jobs(house, WAITING) == CALLERS

    def resume() -> None:
        house.broker.resume("load", clock.now())
        house.line.turn()

    async def crowd() -> list[Crowd]:
        loop = asyncio.get_running_loop()
        place = place_of(house.workers)
        crowds = [Crowd(name, JOBS // CONNECTIONS, seen, asyncio.Event()) for name in range(CONNECTIONS)]
        transports = [
            (await loop.create_connection(lambda each=each: each, place.host, place.port))[0]  # type: ignore[union-attr]
            for each in crowds
        ]
        for each in crowds:
            each.begin(WORKERS // CONNECTIONS, CALLERS // CONNECTIONS)
        await asyncio.to_thread(until, parked, "a thousand requests are parked")
        await asyncio.to_thread(house.run, resume)
        async with asyncio.timeout(60):
            for each in crowds:
                await each._over.wait()
        for each in transports:
            each.close()
        return crowds

    crowds = asyncio.run(crowd())
    assert [each.wrong for each in crowds] == [[]] * CONNECTIONS
    assert [each.answered for each in crowds] == [JOBS // CONNECTIONS] * CONNECTIONS
    assert len(seen) == seen.total() == JOBS
    assert (house.counters.accepted, house.counters.handed_out) == (JOBS, JOBS)
    assert silent(house) == {}
    assert house.counters.bad_messages == {}


def test_the_broker_lets_go_of_all_who_left(broker_house: Start, nngs: Nngs) -> None:
    """Nothing of them stays when their times are over."""
    times = "heartbeat_after=0.2&heartbeat_timeout=0.3&detach_timeout=0.1&keep_answers=0.1&orphan_grace=0.1"
    house = broker_house(f"{TCP}?{times}")
    for _ in range(3):
        theirs = Nngs()
        try:
            theirs.work(house.workers, 5)
            joined(house, 5)
            caller = theirs.dial(house.callers)
            caller.send(job(b"job"))
            assert result_of(caller.recv()) == b"did job"
        finally:
            theirs.close()
        until(lambda: count_workers(house) == 0, "the workers are forgotten")
    assert house.run(lambda: len(house.broker.jobs)) == 0
    session: Any = house.line.sessions[0]
    until(lambda: house.run(lambda: session._callers.answers.bytes) == 0, "the answers are forgotten")
    assert house.run(lambda: (session._guests, session._callers.orphans, session._lost_readies)) == ({}, {}, {})


# -------------------------------------------------------------------- clients that come back, and strangers


class Relay:
    """Stands between libnng and the broker. It loses the very first answer, and resets both sides."""

    def __init__(self, where: str) -> None:
        self.lost = 0
        self._where = where
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.where = f"tcp://127.0.0.1:{self._listening.getsockname()[1]}"
        self._stop, self._stopped = socket.socketpair()
        self._thread = threading.Thread(target=self._live, name="relay")
        self._thread.start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.close()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self._stopped.close()
        self._listening.close()

    def _live(self) -> None:
        while self._listening in select.select([self._listening, self._stopped], [], [])[0]:
            with self._listening.accept()[0] as client, Raw(self._where) as broker:
                self._pass_on(client, broker)

    def _pass_on(self, client: socket.socket, broker: Raw) -> None:
        client.sendall(broker.take(8))
        while True:
            ready = select.select([client, broker.socket, self._stopped], [], [])[0]
            if self._stopped in ready:
                return
            if broker.socket in ready and not self.lost:
                self.lost += 1
                for each in (client, broker.socket):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                return
            for one, other in ((client, broker.socket), (broker.socket, client)):
                if one in ready:
                    data = one.recv(1 << 16)
                    if not data:
                        return
                    other.sendall(data)


def test_r63_the_answer_that_a_cut_has_lost_is_given_to_libnng_when_it_asks_again(
    broker_house: Start, nngs: Nngs, loop_name: str
) -> None:
    house = broker_house(TCP, loop=loop_name)
    crew = nngs.work(house.workers)
    joined(house)
    with Relay(house.callers) as relay:
        caller = nngs.dial(relay.where)
        caller.send(job(b"once"))
        assert result_of(caller.recv()) == b"did once"
        assert relay.lost == 1
        caller.close()
    assert crew.done == [b"once"]
    assert house.counters.replayed_answers == 1


@pytest.mark.parametrize("is_closed", [True, False], ids=["it has gone", "it is still there"])
def test_r63_the_answer_of_a_libnng_is_not_given_to_a_stranger(
    broker_house: Start, nngs: Nngs, loop_name: str, url: str, is_closed: bool
) -> None:
    """Another connection of the same address with the same request id and message was given the kept answer."""
    house = broker_house(url, loop=loop_name)
    crew = nngs.work(house.workers)
    joined(house)
    heard = tap(house, JOB)
    caller = nngs.dial(house.callers)
    caller.send(job(b"mine"))
    assert result_of(caller.recv()) == b"did mine"
    if is_closed:
        caller.close()
        until(lambda: len(house.line.connections.peers) == 1, "the caller's connection has ended")
    with Plain(house.callers).greeted() as stranger:
        stranger.ask(job(b"mine"), heard[0])
        assert result_of(stranger.answer()[1]) == b"did mine"
    assert crew.done == [b"mine", b"mine"]
    assert house.counters.replayed_answers == 0


def test_r63_an_answer_that_was_not_read_is_kept_for_its_process_only(
    broker_house: Start, nngs: Nngs, loop_name: str, free_path: Path
) -> None:
    house = broker_house(f"memodb+ipc://{free_path}", loop=loop_name)
    crew = nngs.work(house.workers)
    joined(house)
    session = house.line.sessions[0]
    with Plain(house.callers).greeted() as caller:
        request = caller.ask(job(b"mine"))
        until(lambda: session._callers.answers.bytes, "it is answered")
        until(lambda: caller.socket.recv(1, socket.MSG_PEEK), "the answer is there")
    until(lambda: len(house.line.connections.peers) == 1, "the caller's connection has ended")
    body = request + job(b"mine")
    program = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.settimeout(60); s.connect(sys.argv[1]);"
        "s.sendall(bytes.fromhex(sys.argv[2])); s.recv(8, socket.MSG_WAITALL); s.recv(1)"
    )
    said = b"\0SP\0\0\x30\0\0\x01" + len(body).to_bytes(8, "big") + body
    subprocess.run([sys.executable, "-c", program, str(free_path), said.hex()], check=True, timeout=PATIENCE)
    assert (crew.done, house.counters.replayed_answers) == ([b"mine", b"mine"], 0)
    with Plain(house.callers).greeted() as caller:
        caller.ask(job(b"mine"), request)
        assert result_of(caller.answer()[1]) == b"did mine"
    assert (crew.done, house.counters.replayed_answers) == ([b"mine", b"mine"], 1)


def test_large_jobs_under_one_request_id_each_get_their_own_answer(broker_house: Start, nngs: Nngs) -> None:
    """Of a message over 16 KiB only samples were compared, and this one's answer was given to that one."""
    house = broker_house(TCP)
    crew = nngs.work(house.workers)
    joined(house)
    payload = bytearray(MIB)
    for at in (5_000, 300_000, MIB - 5_000):
        payload[at] = 1
        caller = Plain(house.callers).greeted()
        caller.ask(job(bytes(payload)), b"\x80\0\0\x01")
        assert result_of(caller.answer()[1]) == b"did " + payload
        caller.reset()
    assert len(crew.done) == 3
