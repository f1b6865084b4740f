"""Messages to clients and workers when the broker stops, in each dialect that has one."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from broker_setup import BrokerSetup, Raw, place_of

from dragoman.core.counters import QUEUE_TIMEOUT
from dragoman.core.states import IDLE
from dragoman.dialects.native.codec import write_hello
from dragoman.dialects.native.messages import BYE, WELCOME, Hello, Role
from programs import until

Start = Callable[..., BrokerSetup]

NATIVE = "tcp://127.0.0.1:0"
GOODBYE = [bytes((BYE, 0)), b"the broker stops"]  # one may come back


def joined(setup: BrokerSetup) -> None:
    until(
        lambda: setup.run(lambda: [each.state for each in setup.broker.worker_registry.workers.values()]) == [IDLE],
        "idle",
    )


def hello(raw: Raw, role: Role, **about: object) -> Raw:
    raw.greet().message(*map(bytes, write_hello(Hello(role, **about))))  # type: ignore[arg-type]
    assert raw.receive()[0][0] == WELCOME
    return raw


@pytest.mark.parametrize("session", ["", "5f" * 16])
def test_native_clients_and_workers_hear_bye_and_may_come_back(broker_setup: Start, session: str) -> None:
    """A bug: they received nothing. A program with a libzmq socket, which reconnects silently, noticed only by the
    lease."""
    setup = broker_setup(NATIVE)
    with ExitStack() as stack:
        client = hello(stack.enter_context(Raw(setup.callers)), Role.CLIENT, session=session)
        worker = hello(stack.enter_context(Raw(setup.workers)), Role.WORKER, services=("echo",))
        stack.enter_context(Raw(setup.callers)).greet()  # and one that never said HELLO
        setup.run(setup.server.drain)
        assert client.receive() == GOODBYE
        assert worker.receive() == GOODBYE
        assert (client.rest(), worker.rest()) == (b"", b"")


def test_a_native_client_hears_the_outcome_of_its_job_before_bye(broker_setup: Start) -> None:
    setup = broker_setup(NATIVE, drain_timeout=0.1)
    with Raw(setup.callers) as client, Raw(setup.workers) as worker:
        hello(worker, Role.WORKER, services=("echo",))
        joined(setup)
        hello(client, Role.CLIENT)
        client.message(bytes.fromhex("1000ff00000000000000000000000000") + b"echo", bytes(16), b"a job")
        assert worker.receive()[-1] == b"a job"
        setup.run(setup.server.drain)
        head, _, sentence, _ = client.receive()
        assert (head[:2], sentence) == (b"\x21\x03", b"the broker stopped while it ran")
        assert client.receive() == GOODBYE
        assert worker.receive() == GOODBYE


def test_a_client_that_has_left_is_not_told_anything(broker_setup: Start) -> None:
    setup = broker_setup(NATIVE)
    with Raw(setup.callers) as client:
        hello(client, Role.CLIENT, session="5f" * 16)
    until(lambda: not setup.run(lambda: setup.runner.connections.peers), "it has gone")
    setup.run(setup.server.drain)
    until(setup.server.stopped.done, "the broker has stopped")


def test_majordomo_workers_hear_disconnect(broker_setup: Start) -> None:
    setup = broker_setup("majordomo+tcp://127.0.0.1:0")
    with Raw(setup.workers) as worker:
        worker.greet().message(b"", b"MDPW01", b"\x01", b"echo")
        joined(setup)
        setup.run(setup.server.drain)
        assert worker.receive() == [b"", b"MDPW01", b"\x05"]
        assert worker.rest() == b""


def test_pingpong_workers_are_not_told_to_leave_for_good(broker_setup: Start) -> None:
    """EXIT is the only such message of PingPong, and a worker that received it would not reconnect."""
    setup = broker_setup("pingpong+tcp://127.0.0.1:0?service=echo")
    with Raw(setup.workers) as worker:
        worker.greet().message(b"", b"READY")
        assert worker.receive() == [b"", b"PONG"]
        joined(setup)
        setup.run(setup.server.drain)
        until(setup.server.stopped.done, "the broker has stopped")
        setup.run(setup.server.host.close)
        assert worker.rest() == b""


def test_nobody_is_let_in_once_goodbye_is_said(broker_setup: Start) -> None:
    """Else a peer that comes back at once comes back to a broker that is about to end, which swallows its READY."""
    setup = broker_setup(NATIVE)
    with Raw(setup.workers) as worker:
        hello(worker, Role.WORKER, services=("echo",))
        setup.run(setup.server.drain)
        assert worker.receive() == GOODBYE
        place = place_of(setup.workers)
        with pytest.raises(ConnectionRefusedError), socket.create_connection((place.host, place.port)):  # type: ignore[union-attr]
            pass


def test_dropped_jobs_that_no_warning_has_counted_yet_are_reported_when_the_broker_ends(broker_setup: Start) -> None:
    """R15: one warning per service and minute, and no later minute comes."""
    setup = broker_setup(NATIVE)

    def drop(count: int) -> None:
        for _ in range(count):
            setup.counters.drop("s", QUEUE_TIMEOUT, "the reason")
        setup.runner.run_once()

    def reported() -> list[object]:
        return [fields["count"] for _, event, fields in setup.journal.lines if event == "jobs dropped"]

    setup.run(drop, 1)
    setup.run(drop, 9)
    assert reported() == [1]
    assert setup.run(setup.server.close)
    assert reported() == [1, 9]
