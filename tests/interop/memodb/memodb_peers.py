"""MemoDB clients and workers that are not Dragoman's: on libnng and on plain sockets.

All CBOR here is written by cbor2. Traps of pynng: contexts must be closed before their socket, and take over its
options when they are created.
"""

from __future__ import annotations

import io
import queue
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import cbor2
import pynng
from broker_setup import BrokerSetup, Raw, place_of
from pynng.nng import MsOption

from dragoman.core.states import IDLE, WorkerState
from dragoman.sdk.address import UnixAddress
from programs import PATIENCE, until

READY, JOB, RESULT, HEARTBEAT, DISCONNECT = range(1, 6)
NO_RESEND = 3_600_000
Start = Callable[..., BrokerSetup]
TCP = "memodb+tcp://127.0.0.1:0"


def memo(*items: object, payload: bytes = b"") -> bytes:
    return cbor2.dumps(["memo01", *items], canonical=True) + payload


def job(payload: bytes, service: str = "default", timeout: int = 60_000) -> bytes:
    return memo(JOB, b"", service, timeout, payload=payload)


def read(message: bytes) -> tuple[int, bytes, list[Any], bytes]:
    """Return type, id, further items and payload."""
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
    """Sockets and contexts of libnng with time-outs. They end with the test, in the order that libnng needs."""

    def __init__(self) -> None:
        self._ends = ExitStack()

    def close(self) -> None:
        self._ends.close()

    def dial(self, where: str, *, resend: int = NO_RESEND) -> Any:
        """Connect; `resend` is in milliseconds."""
        patience = int(PATIENCE * 1000)
        made = Req(recv_timeout=patience, send_timeout=patience, resend_time=resend, recv_max_size=0)
        self._ends.callback(made.close)
        made.resend_tick = min(1000, max(1, resend // 10))
        made.reconnect_time_min = made.reconnect_time_max = 20
        made.dial(where, block=True)
        return made

    def contexts(self, made: Any, count: int) -> list[Any]:
        return [self._ends.enter_context(made.new_context()) for _ in range(count)]

    def work(self, where: str, count: int = 1, services: tuple[str, ...] = ("default",), **options: Any) -> WorkerGroup:
        job_runner = WorkerGroup(self.contexts(self.dial(where, **options), count), services)
        self._ends.callback(job_runner.close)
        return job_runner


class WorkerGroup:
    """Workers on libnng, a thread and a context each. They behave as the third-party workers."""

    def __init__(self, contexts: list[Any], services: tuple[str, ...]) -> None:
        self.heard: queue.Queue[tuple[int, bytes]] = queue.Queue()  # type and id of every answer
        self.done: list[bytes] = []  # payloads, as they came
        self._over = threading.Event()
        self._services = list(services)
        self._contexts = contexts
        self._threads = [threading.Thread(target=self._live, args=(each,), name="workers") for each in contexts]
        for each in self._threads:
            each.start()

    def close(self) -> None:
        self._over.set()
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
                if self._over.is_set():
                    return
                raise
            self.heard.put((kind, id))
            if kind == JOB:
                self.done.append(payload)
                words = payload[:40].split()
                if words[:1] == [b"sleep"]:
                    self._over.wait(float(words[1]))  # the job's own duration, unless the test ends first
                big = words[:1] == [b"size"]
                request = memo(RESULT, id, payload=b"x" * int(words[1]) if big else b"did " + payload)
            elif kind == HEARTBEAT:
                request = memo(HEARTBEAT, id)
            else:
                request = memo(READY, b"", self._services)


class Plain(Raw):
    """A REQ on a plain socket that neither repeats nor waits by itself."""

    def __init__(self, where: str, receive_buffer: int = 0) -> None:
        super().__init__(where, receive_buffer)
        self._mark = b"\x01" if isinstance(place_of(where), UnixAddress) else b""
        self._number = 0

    def greeted(self) -> Plain:
        self.say(b"\0SP\0\0\x30\0\0")
        assert self.take(8) == b"\0SP\0\0\x31\0\0"
        return self

    def ask(self, message: bytes, request: bytes = b"") -> bytes:
        """Send a request. Returns its id."""
        self._number += 1
        request = request or (0x8000_0000 | self._number).to_bytes(4, "big")
        self.write(request + message)
        return request

    def write(self, body: bytes) -> None:
        self.say(self._mark + len(body).to_bytes(8, "big") + body)

    def answer(self) -> tuple[bytes, bytes]:
        """Return request id and message of the next answer."""
        assert self.take(len(self._mark)) == self._mark
        body = self.take(int.from_bytes(self.take(8), "big"))
        return body[:4], body[4:]


def count_workers(setup: BrokerSetup, state: WorkerState | None = None) -> int:
    def count() -> int:
        return sum(state is None or worker.state is state for worker in setup.broker.worker_registry.workers.values())

    return int(setup.run(count))


def count_jobs(setup: BrokerSetup, state: object) -> int:
    return int(setup.run(lambda: sum(job.state is state for job in setup.broker.jobs.values())))


def joined(setup: BrokerSetup, count: int = 1) -> None:
    until(lambda: count_workers(setup, IDLE) >= count, f"{count} workers are there and idle")


def silent(setup: BrokerSetup) -> dict[str, int]:
    return {str(outcome): count for outcome, count in setup.counters.unreported_outcomes.items()}


def tap(setup: BrokerSetup, kind: int) -> list[bytes]:
    """Return the routes of all messages of this type that the broker receives from now on."""
    session = setup.runner.sessions[0]
    heard: list[bytes] = []
    receive = session.receive

    def listen(peer: Any, message: Any, now: float) -> None:
        if read(bytes(message[1]))[0] == kind:
            heard.append(bytes(message[0]))
        receive(peer, message, now)

    setup.run(setattr, session, "receive", listen)
    return heard


def again(broker_setup: Start, setup: BrokerSetup, options: str = "") -> BrokerSetup:
    """Start another broker at the same address."""
    setup.close()
    return broker_setup(f"memodb+{setup.workers}{options}")
