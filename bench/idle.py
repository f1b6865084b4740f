"""Memory of an idle worker's connection: the growth of the broker's RSS while real libzmq workers join."""

from __future__ import annotations

import time
from dataclasses import dataclass

import zmq

from bench.brokers import Broker, Kind, running
from bench.load import Context, Socket, dial
from bench.measure import NotMeasured, count_open_files, read_process

FIRST_WORKERS = 100
BATCH = 100
JOIN_LIMIT = 30.0
SETTLE = 1.5
PING_EVERY = 1.0


@dataclass(frozen=True, slots=True)
class Growth:
    """RSS with the first connections and with all of them. The first ones pay for code and pools that are loaded
    once."""

    name: str
    first: int
    number: int
    first_rss_kib: int
    rss_kib: int

    @property
    def kib_each(self) -> float:
        """Return the memory of one more connection, in KiB."""
        return (self.rss_kib - self.first_rss_kib) / (self.number - self.first)


def measure_idle(kind: Kind, workers: int) -> Growth:
    """Start a broker, let idle workers join, and measure its growth."""
    with running(kind) as broker, zmq.Context() as context:
        context.set(zmq.MAX_SOCKETS, workers + 16)
        crowd = IdleCrowd(context, broker)
        try:
            crowd.grow_to(FIRST_WORKERS)
            first = read_process(broker.pid).rss_kib
            crowd.grow_to(workers)
            everyone = read_process(broker.pid).rss_kib
        finally:
            crowd.close()
    return Growth(kind.name, FIRST_WORKERS, workers, first, everyone)


class IdleCrowd:
    """Workers that send READY, then only PING, while `_live` is called."""

    def __init__(self, context: Context, broker: Broker) -> None:
        self._context = context
        self._broker = broker
        self._speaks = broker.kind.mode == "pingpong"
        self._sockets: list[Socket] = []
        self._heard: set[Socket] = set()
        self._next_ping = time.monotonic()

    def grow_to(self, workers: int) -> None:
        """Join in batches that fit any listen backlog, then wait until the broker has settled."""
        while len(self._sockets) < workers:
            for _ in range(min(BATCH, workers - len(self._sockets))):
                self._join()
            self._wait_until_joined()
        over = time.monotonic() + SETTLE
        while time.monotonic() < over:
            self._live()

    def close(self) -> None:
        """Close the sockets without a message, as these workers do."""
        for socket in self._sockets:
            socket.close()

    def _join(self) -> None:
        socket = dial(self._context, self._broker.backend)
        if self._speaks:
            socket.send_multipart([b"", b"READY"])
        self._sockets.append(socket)

    def _wait_until_joined(self) -> None:
        deadline = time.monotonic() + JOIN_LIMIT
        while self._joined() < len(self._sockets):
            if time.monotonic() > deadline:
                raise NotMeasured(
                    f"{self._broker.kind.name}: {self._joined()} of {len(self._sockets)} idle workers joined "
                    f"in {JOIN_LIMIT:g} s (is the limit of open files too low?)"
                )
            self._live()

    def _joined(self) -> int:
        """Return the number of joined workers. A PingPong broker answers each PING; for a proxy, open connections are
        counted."""
        return len(self._heard) if self._speaks else count_open_files(self._broker.pid)

    def _live(self) -> None:
        """Behave as idle workers for a moment: ping when due, and read replies."""
        if self._speaks and time.monotonic() >= self._next_ping:
            self._next_ping = time.monotonic() + PING_EVERY
            for socket in self._sockets:
                socket.send_multipart([b"", b"PING"])
        for socket in self._sockets:
            self._read_all(socket)
        time.sleep(0.02)

    def _read_all(self, socket: Socket) -> None:
        while socket.poll(0):
            socket.recv_multipart()
            self._heard.add(socket)
