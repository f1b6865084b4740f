"""Workers that have joined and are already gone: sockets that libzmq leaves behind while the broker is down."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import zmq
from broker_setup import BrokerSetup, Raw, Visitors, Workers

from dragoman.carriers.zmtp import encode
from dragoman.core.states import IDLE, WAITING
from dragoman.dialects.native.codec import write_hello
from dragoman.dialects.native.messages import Hello, Role
from programs import until

Start = Callable[..., BrokerSetup]

PINGPONG = "pingpong+tcp://127.0.0.1:0?frontend=0&service=echo"
# How a worker joins, by dialect.
JOINS: dict[str, list[bytes | bytearray]] = {
    "pingpong": [b"", b"READY"],
    "majordomo": [b"", b"MDPW01", b"\x01", b"echo"],
    "native": write_hello(Hello(Role.WORKER, services=("echo",))),
}


def url_of(dialect: str, transport: str, folder: Path) -> str:
    place = "tcp://127.0.0.1:0" if transport == "tcp" else f"ipc://{folder}/s"
    return f"{dialect}+{place}{'?service=echo' if dialect == 'pingpong' else ''}"


def haunt(setup: BrokerSetup, dialect: str) -> None:
    """Join and close, both before the broker can read a byte."""
    ghost = Raw(setup.workers).greet()

    def join_and_close() -> None:
        ghost.say(b"".join(encode(JOINS[dialect])))
        ghost.socket.close()

    setup.run(join_and_close)


def has_left(setup: BrokerSetup, count: int) -> bool:
    return sum(event == "worker left" for _, event, _ in list(setup.journal.lines)) == count


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
@pytest.mark.parametrize("dialect", list(JOINS))
def test_no_job_is_given_to_a_worker_that_has_closed_its_connection(
    broker_setup: Start, tmp_path: Path, dialect: str, transport: str
) -> None:
    """D7. A bug: READY was read in one turn and the end of the connection in the next; in between it had a job."""
    setup = broker_setup(url_of(dialect, transport, tmp_path), PINGPONG)
    with Raw(setup.places[1]["callers"]) as caller, Raw(setup.places[1]["workers"]) as worker:
        caller.greet(b"REQ").message(b"", b"a job")
        until(lambda: setup.run(lambda: [job.state for job in setup.broker.jobs.values()]) == [WAITING], "it waits")
        for number in range(1, 4):
            haunt(setup, dialect)
            until(partial(has_left, setup, number), "the ghost has gone")
        assert setup.counters.dispatched == 0
        worker.greet().message(b"", b"READY")
        assert worker.receive() == [b"", b"PONG"]
        assert worker.receive() == [b"", b"a job"]
        worker.message(b"", b"A JOB")
        assert caller.receive() == [b"", b"A JOB"]
    assert setup.counters.dispatched == 1


@pytest.mark.parametrize("dialect", list(JOINS))
def test_a_worker_that_stays_is_idle_a_moment_after_it_joined(
    broker_setup: Start, tmp_path: Path, dialect: str
) -> None:
    setup = broker_setup(url_of(dialect, "tcp", tmp_path))
    with Raw(setup.workers) as worker:
        worker.greet().say(b"".join(encode(JOINS[dialect])))
        until(
            lambda: setup.run(lambda: [each.state for each in setup.broker.worker_registry.workers.values()]) == [IDLE],
            "idle",
        )


def test_calls_that_waited_for_the_broker_are_done_by_the_live_worker_and_not_by_ghosts(
    broker_setup: Start, visitors: Visitors, tmp_path: Path
) -> None:
    """Sockets of libzmq, closed with its default linger while no broker listened; they connect when one does."""
    back, front = f"ipc://{tmp_path}/back", f"ipc://{tmp_path}/front"
    callers = [visitors.visit(zmq.DEALER, front) for _ in range(5)]
    for caller in callers:
        caller.send_multipart([b"", b"a job"])
    for _ in range(5):
        ghost = visitors.visit(zmq.DEALER, back)
        ghost.send_multipart([b"", b"READY"])
        ghost.close(linger=-1)
    with Workers(visitors, back, do=bytes.upper):
        broker_setup(f"pingpong+{back}?frontend={front.replace(':', '%3A').replace('/', '%2F')}")
        assert [caller.recv_multipart()[-1] for caller in callers] == [b"A JOB"] * 5
