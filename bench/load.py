"""Load generator on pyzmq, for systems without a C compiler or zmq.h: the options, the protocol and the JSON line of
load.c.

It is slow enough to be the limit itself, so jobs/s then says little; the broker's CPU per job still counts.
"""

from __future__ import annotations

import argparse
import json
import math
import struct
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import cycle

import zmq

from bench.measure import Run, run_between, take_reading

SMALLEST_BODY = 24
JOIN_LIMIT = 20.0
REPLY_LIMIT_MS = 5000
WORKER_NAP = 0.1

_HEAD = struct.Struct("=qi")  # time of sending, and slot of the job
_TAIL = struct.Struct("=q")  # time of sending, repeated to detect torn bodies

Context = zmq.Context[zmq.Socket[bytes]]
Socket = zmq.Socket[bytes]


class LoadError(Exception):
    """The run cannot be measured; the message gives the reason."""


def main() -> None:
    """Run the load for zmq.proxy and for PingPong."""
    drive(read_options("bench.load", "proxy", "pingpong"), Crowd)


def drive(
    options: argparse.Namespace,
    crowd_of: Callable[[Context, argparse.Namespace, int], Team],
    prepare: Callable[[Context], None] = lambda _: None,
) -> None:
    """Run the load once with workers of this kind, and print its JSON line. `prepare` sets options of all sockets."""
    context: Context = zmq.Context()
    prepare(context)
    context.set(zmq.MAX_SOCKETS, 2 * options.workers + 16)
    context.setsockopt(zmq.LINGER, 0)  # linger of every socket: a dead broker must not block the exit
    crowds = [crowd_of(context, options, share) for share in _shares(options.workers, options.threads)]
    for crowd in crowds:
        crowd.start()
    client = Client(context, options)
    try:
        print(json.dumps(asdict(_measure(client, crowds, options))))
    except LoadError as error:
        sys.exit(f"load: {error}")
    finally:
        for crowd in crowds:
            crowd.stop()
        context.destroy()


def read_options(program: str, *modes: str) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog=program)
    parser.add_argument("--mode", choices=modes, required=True)
    parser.add_argument("--frontend", required=True)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--window", type=int, default=100)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--warmup", type=float, default=0.5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--broker-pid", type=int, default=0)
    options = parser.parse_args()
    if min(options.workers, options.window, options.threads) < 1 or options.size < SMALLEST_BODY:
        parser.error("workers, window and threads must be at least 1, size at least 24")
    return options


def _shares(workers: int, threads: int) -> list[int]:
    threads = min(threads, workers)
    return [workers // threads + (i < workers % threads) for i in range(threads)]


def _measure(client: Client, crowds: list[Team], options: argparse.Namespace) -> Run:
    _warm_up(client, crowds, options)
    client.latencies_ns.clear()
    before = take_reading(options.broker_pid)
    over = time.monotonic() + options.seconds
    while time.monotonic() < over:
        client.turn()
    after = take_reading(options.broker_pid)
    measured = client.latencies_ns.copy()
    missing = client.collect_the_rest()
    return run_between(before, after, measured, client.wrong, missing)


def _warm_up(client: Client, crowds: list[Team], options: argparse.Namespace) -> None:
    start = time.monotonic()
    while time.monotonic() < start + options.warmup or sum(len(crowd.heard) for crowd in crowds) < options.workers:
        client.turn()
        if time.monotonic() > start + JOIN_LIMIT:
            heard = sum(len(crowd.heard) for crowd in crowds)
            raise LoadError(f"warm-up failed: {heard} of {options.workers} workers received a message from the broker")


def dial(context: Context, endpoint: str) -> Socket:
    """Return a DEALER without high-water marks that drops unsent messages when it closes."""
    socket = context.socket(zmq.DEALER)
    socket.set_hwm(0)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(endpoint)
    return socket


class Team(ABC):
    """The workers of one thread. `heard` are those that have received a message from the broker."""

    def __init__(self, context: Context, options: argparse.Namespace, count: int) -> None:
        self.heard: set[object] = set()
        self._context = context
        self._backend: str = options.backend
        self._count = count
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        """Connect and work until stopped."""
        self._thread.start()

    def stop(self) -> None:
        """Close the sockets, from the thread that owns them."""
        self._stopping.set()
        self._thread.join()

    @abstractmethod
    def _work(self) -> None:
        """Join, and echo every job until `_stopping` is set."""


class Rota:
    """Due times of pings, spread evenly over the second, as the pings of unrelated workers are."""

    def __init__(self, sockets: Sequence[Socket]) -> None:
        self._turns = cycle(sockets)
        self._step = 1 / len(sockets)
        self._next = time.monotonic()

    def nap_ms(self) -> int:
        """Return the milliseconds until the next ping is due."""
        return math.ceil(1000 * min(max(self._next - time.monotonic(), 0.0), WORKER_NAP))

    def due(self) -> Iterator[Socket]:
        """Return the workers whose ping is due."""
        now = time.monotonic()
        while now >= self._next:
            self._next += self._step
            yield next(self._turns)


class Crowd(Team):
    """Workers that echo; those of PingPong ping, too."""

    def __init__(self, context: Context, options: argparse.Namespace, count: int) -> None:
        super().__init__(context, options, count)
        self._pingpong: bool = options.mode == "pingpong"

    def _work(self) -> None:
        sockets = [dial(self._context, self._backend) for _ in range(self._count)]
        poller = zmq.Poller()
        for socket in sockets:
            poller.register(socket, zmq.POLLIN)
            if self._pingpong:
                socket.send_multipart([b"", b"READY"])
        rota = Rota(sockets)
        while not self._stopping.is_set():
            for socket, _events in poller.poll(rota.nap_ms()):
                self._answer_all(socket)
            for socket in rota.due():
                if self._pingpong:
                    socket.send_multipart([b"", b"PING"])
        for socket in sockets:
            socket.close()

    def _answer_all(self, socket: Socket) -> None:
        self.heard.add(socket)
        try:
            while True:
                frames = socket.recv_multipart(zmq.DONTWAIT)
                if not (self._pingpong and frames == [b"", b"PONG"]):
                    socket.send_multipart(frames)
        except zmq.Again:
            pass


class Client:
    """One socket that keeps its window of jobs in flight and tracks them."""

    def __init__(self, context: Context, options: argparse.Namespace) -> None:
        self.socket = dial(context, options.frontend)
        self.socket.setsockopt(zmq.RCVTIMEO, REPLY_LIMIT_MS)
        self.latencies_ns: list[int] = []
        self.wrong = 0
        self._size: int = options.size
        self._filler = b"x" * (options.size - _HEAD.size - _TAIL.size)
        self._sent: dict[int, int] = {}  # slot -> time at which its job was sent
        self._free = list(range(options.window))
        self._last_sent = 0

    def turn(self) -> None:
        """Fill the window, wait for a reply, then take all available replies."""
        while self._free:
            self._submit()
        try:
            frames = self.socket.recv_multipart()
        except zmq.Again:
            raise LoadError(f"no reply for {REPLY_LIMIT_MS} ms, {len(self._sent)} jobs unanswered") from None
        try:
            self._take_reply(frames)
            while self._sent:
                self._take_reply(self.socket.recv_multipart(zmq.DONTWAIT))
        except zmq.Again:
            pass

    def collect_the_rest(self) -> int:
        """Take the outstanding replies. Returns the number of missing ones."""
        try:
            while self._sent:
                self._take_reply(self.socket.recv_multipart())
        except zmq.Again:
            pass
        return len(self._sent)

    def _submit(self) -> None:
        slot = self._free.pop()
        # No two jobs carry the same time, so it identifies the job.
        sent = self._last_sent = max(time.monotonic_ns(), self._last_sent + 1)
        self._sent[slot] = sent
        self.socket.send_multipart([b"", b"".join((_HEAD.pack(sent, slot), self._filler, _TAIL.pack(sent)))])

    def _take_reply(self, frames: list[bytes]) -> None:
        slot = self._slot_answered(frames)
        if slot is None:
            if not self.wrong:
                print(f"load: wrong reply: {[frame[:60] for frame in frames]}", file=sys.stderr)
            self.wrong += 1
            return
        self.latencies_ns.append(time.monotonic_ns() - self._sent.pop(slot))
        self._free.append(slot)

    def _slot_answered(self, frames: list[bytes]) -> int | None:
        """Return the slot of the job that this message answers, or None if it is not a valid answer."""
        if len(frames) != 2 or frames[0] or len(frames[1]) != self._size:
            return None
        sent, slot = _HEAD.unpack_from(frames[1])
        (sent_again,) = _TAIL.unpack_from(frames[1], self._size - _TAIL.size)
        return slot if self._sent.get(slot) == sent == sent_again else None


if __name__ == "__main__":
    main()
