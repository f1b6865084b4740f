"""Handshakes over the limits wait in the kernel's queue; listeners without handshakes are not affected (R168)."""

from __future__ import annotations

import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from broker_setup import BrokerSetup

from authority import Authority, Issued
from dragoman.server.handshakes import Handshakes
from programs import PATIENCE, until


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

    def counted(address: str) -> None:
        seconds[handshakes._second] += 1
        begin(address)

    handshakes.begin = counted  # type: ignore[method-assign]
    for _ in range(15):
        connect(stack, port)
    until(lambda: seconds.total() == 15, "all have been accepted")
    assert max(seconds.values()) <= 5
    assert setup.counters.connections_rejected == 0
