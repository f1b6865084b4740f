"""Handshakes over the limits wait in the kernel's queue; listeners without handshakes are not affected (R168)."""

from __future__ import annotations

import socket
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from math import inf
from typing import Any

import pytest
from broker_setup import BrokerSetup

from authority import Authority, Issued
from dragoman.carriers.zmtp import Zmtp
from dragoman.server.handshakes import Handshake, Handshakes
from programs import PATIENCE, until

FLOOD = 50  # connections: fewer than one address may have


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> Issued:
    return authority.issue()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(stack: ExitStack, *urls: str, **config: int) -> BrokerSetup:
    setup = BrokerSetup(*urls, **config)
    stack.callback(setup.close)
    return setup


def ports_of(setup: BrokerSetup) -> list[int]:
    return [int(each["both"].rpartition(":")[2]) for each in setup.places]


def handshakes_of(setup: BrokerSetup) -> Handshakes:
    return setup.runner.connections.registry.handshakes


def connect(stack: ExitStack, port: int) -> socket.socket:
    """Connect, and send nothing."""
    return stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))


def is_closed(connected: socket.socket) -> bool:
    """Wait until the broker closes the connection."""
    try:
        return connected.recv(1) == b""
    except ConnectionResetError:
        return True


def shake_hands(stack: ExitStack, connected: socket.socket, authority: Authority) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(authority.cert))
    return stack.enter_context(context.wrap_socket(connected, server_hostname="localhost"))


def test_connections_over_the_limit_wait_until_a_handshake_has_ended(
    stack: ExitStack, authority: Authority, certificate: Issued
) -> None:
    """Both kinds of acceptors share the limit; the listener without TLS goes on meanwhile."""
    setup = start(
        stack,
        f"native+tls://127.0.0.1:0?{certificate.options}",
        f"https://127.0.0.1:0?{certificate.options}",
        "majordomo+tcp://127.0.0.1:0",
        max_unauthenticated=2,
    )
    native, https, plain = ports_of(setup)
    handshakes = handshakes_of(setup)
    handshakes.patience = inf
    idle = [connect(stack, native), connect(stack, https)]
    until(lambda: handshakes.in_progress == 2, "two have been accepted")
    waiting = [connect(stack, port) for port in (https, https)]
    greeted = connect(stack, plain)
    assert greeted.recv(1)  # the greeting of a broker that has accepted it
    assert handshakes.in_progress == 2
    for each in idle:
        each.close()
    for each in waiting:
        shake_hands(stack, each, authority)
    until(
        lambda: handshakes.totals == {("tls", "failed"): 2, ("tls", "done"): 2},
        "the idle ones have failed, and the others have ended their handshake",
    )
    assert handshakes.in_progress == 0
    assert setup.counters.connections_rejected == 0


def test_handshakes_of_a_second_are_limited_and_nobody_is_rejected(stack: ExitStack, certificate: Issued) -> None:
    setup = start(stack, f"native+tls://127.0.0.1:0?{certificate.options}", max_handshakes=5)
    (port,) = ports_of(setup)
    handshakes = handshakes_of(setup)
    seconds: Counter[int] = Counter()  # handshakes that began, by second
    begin = handshakes.begin

    def counted(*facts: Any) -> Handshake:
        seconds[handshakes._second] += 1
        return begin(*facts)

    handshakes.begin = counted  # type: ignore[method-assign]
    for _ in range(15):
        connect(stack, port)
    until(lambda: seconds.total() == 15, "all have been accepted")
    assert max(seconds.values()) <= 5
    assert setup.counters.connections_rejected == 0


@pytest.mark.parametrize("scheme", ["native+tls", "https"])
def test_one_address_with_too_many_handshakes_is_rejected_counted_and_logged(
    stack: ExitStack, certificate: Issued, scheme: str
) -> None:
    """A bug: its connections were closed without a log line and a count."""
    setup = start(stack, f"{scheme}://127.0.0.1:0?{certificate.options}", max_unauthenticated=64)
    handshakes_of(setup).patience = inf
    (port,) = ports_of(setup)
    for _ in range(16):
        connect(stack, port)
    until(lambda: handshakes_of(setup).in_progress == 16, "a quarter is in progress")
    assert is_closed(connect(stack, port))
    assert setup.counters.peers_refused == {("tls", "too many handshakes"): 1}
    assert setup.counters.connections_rejected == 1
    assert setup.journal.mentions("16 handshakes of this address are in progress, the maximum")


@pytest.mark.parametrize("scheme", ["native+tls", "https"])
def test_half_handshakes_lose_their_places_to_a_newcomer(
    stack: ExitStack, authority: Authority, certificate: Issued, scheme: str
) -> None:
    """A bug: connections that sent nothing kept out all others until their time-out."""
    setup = start(stack, f"{scheme}://127.0.0.1:0?{certificate.options}", max_unauthenticated=4)
    (port,) = ports_of(setup)
    handshakes = handshakes_of(setup)
    handshakes.patience = 0.0
    idle = [connect(stack, port) for _ in range(4)]
    until(lambda: handshakes.in_progress == 4, "no place is free")
    shake_hands(stack, connect(stack, port), authority)
    assert is_closed(idle[0])
    assert setup.counters.peers_refused["tls", "too many handshakes"] == 1
    assert setup.journal.mentions("another connection needed its place")


def test_flood_of_handshakes_keeps_pongs(stack: ExitStack, certificate: Issued) -> None:
    """Fifty connections that want TLS arrive at once: no iteration of the loop begins many of them, and a worker gets
    its PONG while they wait."""
    setup = start(stack, f"native+tls://127.0.0.1:0?{certificate.options}", "pingpong+tcp://127.0.0.1:0?frontend=0")
    tls, pingpong = (int(each.get("both", each.get("workers", "")).rpartition(":")[2]) for each in setup.places)
    worker = Worker(connect(stack, pingpong))
    handshakes = handshakes_of(setup)
    begin = handshakes.begin
    begun = [0]  # in each iteration of the loop

    def counted(*facts: Any) -> Handshake:
        begun[-1] += 1
        return begin(*facts)

    def next_iteration() -> None:
        begun.append(0)
        if sum(begun) < FLOOD:
            setup.loop.call_soon(next_iteration)

    handshakes.begin = counted  # type: ignore[method-assign]
    gate = threading.Event()
    setup.loop.call_soon_threadsafe(gate.wait, PATIENCE)
    for _ in range(FLOOD):
        connect(stack, tls)
    worker.ping()
    setup.loop.call_soon_threadsafe(next_iteration)
    gate.set()
    worker.sees_pong()
    until(lambda: sum(begun) == FLOOD, "all have been accepted")
    assert max(begun) <= 10, "those of two slices of a second, if one ends meanwhile"


class Worker:
    """A PingPong worker that only sends PINGs."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._carrier = Zmtp("DEALER", dials=True)
        self._pongs = 0
        while not self._carrier.ready:
            self._exchange()

    def _exchange(self) -> None:
        self._socket.sendall(b"".join(self._carrier.outgoing))
        self._carrier.outgoing = []
        came = self._socket.recv(1000)
        assert came, "the broker has closed the connection"
        self._pongs += len(self._carrier.feed(came))
        self._socket.sendall(b"".join(self._carrier.outgoing))
        self._carrier.outgoing = []

    def ping(self) -> None:
        self._socket.sendall(b"".join(map(bytes, self._carrier.encode([b"", b"PING"]))))

    def sees_pong(self) -> None:
        before = self._pongs
        while self._pongs == before:
            self._exchange()
