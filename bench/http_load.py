"""Load generator for HTTP: callers with a connection each and, for a broker, native workers. Options as in load.py.

Everything is Python in one thread, including the workers, so the load itself may be the limit: compare the server's CPU
per job before jobs/s.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from selectors import EVENT_READ, DefaultSelector
from socket import IPPROTO_TCP, TCP_NODELAY, create_connection, socket

from bench.load import JOIN_LIMIT, REPLY_LIMIT_MS, LoadError, read_options
from bench.measure import Run, run_between, take_reading
from dragoman.carriers.carrier import TooLarge
from dragoman.carriers.zmtp import Zmtp
from dragoman.dialects.native.codec import read_jobs, write_hello, write_result
from dragoman.dialects.native.messages import JOB, Hello, Role

READ_SIZE = 1 << 16
CAPACITY = 16


def main() -> None:
    """Run the load on a bare server or on a broker."""
    options = read_options("bench.http_load", "httpecho", "http")
    try:
        with DefaultSelector() as selector:
            print(json.dumps(asdict(_measure(selector, options))))
    except (LoadError, OSError) as error:
        sys.exit(f"load: {error}")


def _measure(selector: DefaultSelector, options: argparse.Namespace) -> Run:
    if options.mode == "http":
        workers = [Worker(options.backend, selector) for _ in range(options.workers)]
        _until(lambda: all(worker.is_welcome for worker in workers), selector)
    callers = [Caller(options, selector) for _ in range(options.window)]
    over = time.monotonic() + options.warmup
    while time.monotonic() < over:
        _turn(selector)
    for caller in callers:
        caller.latencies_ns.clear()
    before = take_reading(options.broker_pid)
    over = time.monotonic() + options.seconds
    while time.monotonic() < over:
        _turn(selector)
    after = take_reading(options.broker_pid)
    latencies_ns = [each for caller in callers for each in caller.latencies_ns]
    for caller in callers:
        caller.is_stopping = True
    _until(lambda: not any(caller.is_waiting for caller in callers), selector)
    return run_between(before, after, latencies_ns, sum(caller.wrong for caller in callers), 0)


def _until(fact: Callable[[], bool], selector: DefaultSelector) -> None:
    limit = time.monotonic() + JOIN_LIMIT
    while not fact():
        _turn(selector)
        if time.monotonic() > limit:
            raise LoadError(f"still waiting after {JOIN_LIMIT:g} s")


def _turn(selector: DefaultSelector) -> None:
    ready = selector.select(REPLY_LIMIT_MS / 1000)
    if not ready:
        raise LoadError(f"no data received for {REPLY_LIMIT_MS} ms")
    for key, _events in ready:
        key.data()


def _dial(endpoint: str) -> socket:
    host, port = endpoint.removeprefix("tcp://").split(":")
    connection = create_connection((host, int(port)), timeout=REPLY_LIMIT_MS / 1000)
    connection.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
    return connection


class Caller:
    """One connection with one request at a time."""

    def __init__(self, options: argparse.Namespace, selector: DefaultSelector) -> None:
        self.latencies_ns: list[int] = []
        self.wrong = 0
        self.is_stopping = False
        self.is_waiting = False
        body = b"x" * options.size
        head = f"POST /v1/call/echo HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {options.size}\r\n\r\n"
        self._request = head.encode() + body
        self._body = body
        self._heard = b""
        self._sent = 0
        self._connection = _dial(options.frontend)
        selector.register(self._connection, EVENT_READ, self._receive)
        self._ask()

    def _ask(self) -> None:
        self._sent = time.monotonic_ns()
        self.is_waiting = True
        self._connection.sendall(self._request)

    def _receive(self) -> None:
        data = self._connection.recv(READ_SIZE)
        if not data:
            raise LoadError("the server closed the connection")
        self._heard += data
        head, found, body = self._heard.partition(b"\r\n\r\n")
        if not found or len(body) < len(self._body):
            if found and not head.startswith(b"HTTP/1.1 200 "):
                raise LoadError(f"invalid response: {self._heard[:300]!r}")
            return
        self._heard = b""
        self.is_waiting = False
        if body != self._body or not head.startswith(b"HTTP/1.1 200 "):
            self.wrong += 1
        self.latencies_ns.append(time.monotonic_ns() - self._sent)
        if not self.is_stopping:
            self._ask()


class Worker:
    """A native worker that echoes."""

    def __init__(self, endpoint: str, selector: DefaultSelector) -> None:
        self.is_welcome = False
        self._carrier = Zmtp("DEALER", dials=True)
        self._connection = _dial(endpoint)
        self._has_greeted = False
        selector.register(self._connection, EVENT_READ, self._receive)
        self._flush()

    def _flush(self) -> None:
        outgoing, self._carrier.outgoing = self._carrier.outgoing, []
        if outgoing:
            self._connection.sendall(b"".join(outgoing))

    def _receive(self) -> None:
        data = self._connection.recv(READ_SIZE)
        if not data:
            raise LoadError("the broker closed a worker's connection")
        for message in self._carrier.feed(data):
            assert not isinstance(message, TooLarge)
            self.is_welcome = True
            if message[0][0] == JOB:
                tokens = [job.token for job in read_jobs(message)]
                self._connection.sendall(b"".join(self._carrier.encode(write_result(tokens, message[2:]))))
        self._flush()
        if self._carrier.ready and not self._has_greeted:
            self._has_greeted = True
            hello = Hello(Role.WORKER, services=("echo",), capacity=CAPACITY)
            self._connection.sendall(b"".join(self._carrier.encode(write_hello(hello))))


if __name__ == "__main__":
    main()
