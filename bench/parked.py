"""Memory of a parked MemoDB request: the growth of the broker's RSS while requests arrive."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count

from bench.brokers import Kind, running
from bench.idle import Growth
from bench.measure import NotMeasured, read_process
from dragoman.carriers.sp import Sp
from dragoman.dialects.memodb.codec import write_disconnect, write_heartbeat, write_job, write_ready

CONNECTIONS = 10
FIRST_REQUESTS = 1_000
ANSWER_LIMIT = 30.0
SETTLE = 1.0
NOBODY = b"0123456789abcdef"  # an id that no worker has

PARKED: dict[str, Callable[[], bytes]] = {
    "workers (READY)": lambda: write_ready(["echo"]),
    "callers (JOB)": lambda: write_job(b"", "nobody offers this", 60_000),
}


def measure_parked(kind: Kind, name: str, requests: int) -> Growth:
    """Start a broker, send requests that stay unanswered, and measure its growth."""
    with running(kind) as broker, ExitStack() as stack:
        host, port = broker.frontend.removeprefix("tcp://").split(":")
        crowds = [stack.enter_context(Crowd(host, int(port))) for _ in range(CONNECTIONS)]
        rss_kib = []
        for number in (FIRST_REQUESTS, requests):
            for crowd in crowds:
                crowd.grow_to(number // CONNECTIONS, PARKED[name]())
            time.sleep(SETTLE)
            rss_kib.append(read_process(broker.pid).rss_kib)
    return Growth(name, FIRST_REQUESTS, requests, *rss_kib)


class Crowd:
    """Many requests on one connection."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=ANSWER_LIMIT)
        self._carrier = Sp("REQ")
        self._socket.sendall(b"".join(self._carrier.outgoing))
        self._ids = count(1 << 31)
        self._parked = 0

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def grow_to(self, number: int, body: bytes) -> None:
        """Send requests until this many wait. A HEARTBEAT of an unknown worker comes last: its answer shows that all
        were read."""
        bodies = [body] * (number - self._parked) + [write_heartbeat(NOBODY)]
        route = b""
        for each in bodies:
            route = next(self._ids).to_bytes(4, "big")
            self._socket.sendall(b"".join(self._carrier.encode([route, each])))
        self._parked = number
        answer = self._next_answer()
        if answer != [route, write_disconnect(NOBODY)]:
            raise NotMeasured(f"a request that should have been parked was answered: {answer}")

    def _next_answer(self) -> object:
        try:
            while data := self._socket.recv(1 << 16):
                for message in self._carrier.feed(data):
                    return message
        except TimeoutError:
            raise NotMeasured(f"the broker does not answer within {ANSWER_LIMIT:g} s") from None
        raise NotMeasured("the broker closed the connection")
