"""The commands `call` and `worker` at brokers that are not Dragoman's."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from pingpong_commands import assert_rested_between_connections, call, caller_url, start_worker

from dragoman.carriers.carrier import Message, TooLarge
from dragoman.carriers.zmtp import Zmtp
from programs import PATIENCE, Program, Programs


class StrangerBroker:
    """A ROUTER in this process, which records every message of a worker."""

    def __init__(self) -> None:
        self._context = zmq.Context()
        self.backend = self._context.socket(zmq.ROUTER)
        self.backend.linger = 0
        self.backend.rcvtimeo = int(PATIENCE * 1000)
        self.backend.bind("tcp://127.0.0.1:*")
        self.url = "pingpong+" + self.backend.getsockopt_string(zmq.LAST_ENDPOINT)

    def close(self) -> None:
        self.backend.close()
        self._context.term()

    def receive(self) -> tuple[bytes, bytes]:
        worker, delimiter, word = self.backend.recv_multipart()
        assert delimiter == b""
        return worker, word

    def say(self, worker: bytes, word: bytes) -> None:
        self.backend.send_multipart([worker, b"", word])


@pytest.fixture
def stranger() -> Iterator[StrangerBroker]:
    broker = StrangerBroker()
    yield broker
    broker.close()


def test_heartbeats_go_on_while_a_long_job_runs(programs: Programs, handlers: Path, stranger: StrangerBroker) -> None:
    options = "ping_every=0.1&broker_timeout=0.2&ping_while_busy=true"
    programs.dragoman("worker", "--concurrency", 1, "handlers:slow", "--connect", f"{stranger.url}?{options}")
    worker, word = stranger.receive()
    assert word == b"READY"
    stranger.say(worker, b"1.0")
    heard = [stranger.receive() for _ in range(6)]
    assert heard == [(worker, b"PING")] * 6  # and it is silence it does not mind while it works
    while word != b"slept 1.0":
        sender, word = stranger.receive()
        assert (sender, word) in [(worker, b"PING"), (worker, b"slept 1.0")]


def test_heartbeats_of_a_busy_worker_do_not_bring_it_a_second_job_from_our_broker(
    programs: Programs, handlers: Path
) -> None:
    broker = programs.broker("worker_expire=0.3&ping_every=0.05")
    worker = start_worker(programs, broker, "handlers:slow", options="ping_every=0.05&ping_while_busy=true")
    callers = [programs.dragoman("call", "default", f"0.6 {n}", "--connect", caller_url(broker)) for n in range(2)]
    assert [each.ends() for each in callers] == [0, 0]
    assert "reconnecting" not in worker.err


def test_a_worker_reconnects_and_says_ready_when_the_broker_is_silent(
    programs: Programs, handlers: Path, stranger: StrangerBroker
) -> None:
    """broker_timeout × n_timeouts; the new connection has a new routing id."""
    programs.dragoman(
        "worker",
        "--concurrency",
        1,
        "handlers:upper",
        "--connect",
        f"{stranger.url}?ping_every=0.1&broker_timeout=0.1&n_timeouts=3",
    )
    first, word = stranger.receive()
    assert word == b"READY"
    worker, pings = first, -1
    while worker == first:
        worker, word = stranger.receive()
        pings += 1
    assert word == b"READY"
    assert pings <= 3  # by the worker's own clock: n_timeouts, however slow the machine is


def test_exit_from_the_broker_ends_the_worker_with_0(
    programs: Programs, handlers: Path, stranger: StrangerBroker
) -> None:
    program = programs.dragoman("worker", "--concurrency", 1, "handlers:upper", "--connect", stranger.url)
    worker, _ = stranger.receive()
    stranger.say(worker, b"EXIT")
    assert program.ends() == 0


def test_r39_a_result_of_a_job_from_an_earlier_connection_is_not_sent(
    programs: Programs, handlers: Path, stranger: StrangerBroker
) -> None:
    """A second job while it works makes it come back on a new connection; what it then finishes is dropped."""
    programs.dragoman("worker", "--concurrency", 1, "handlers:slow", "--connect", f"{stranger.url}?ping_every=0.1")
    first, _ = stranger.receive()
    stranger.say(first, b"0.4 old")
    stranger.say(first, b"0.4 second")
    worker = first
    while worker == first:
        worker, word = stranger.receive()
        assert word in (b"READY", b"PING")
    assert word == b"READY"
    stranger.say(worker, b"0 new")
    while word in (b"READY", b"PING"):
        sender, word = stranger.receive()
    assert (sender, word) == (worker, b"slept 0 new")


class Acceptor:
    """A listening socket that sends a broker's greeting, and then does what the test chooses."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(PATIENCE)
        self.url = f"pingpong+tcp://127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> Acceptor:
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()

    def accept(self) -> socket.socket:
        accepted, _ = self._listening.accept()
        accepted.settimeout(PATIENCE)
        return accepted

    def greet(self, accepted: socket.socket) -> list[Message | TooLarge]:
        """Complete the handshake until the client sends a message or closes. Returns the message."""
        carrier = Zmtp("ROUTER")
        heard: list[Message | TooLarge] = []
        try:
            while not heard:
                for each in carrier.outgoing:
                    accepted.sendall(each)
                carrier.outgoing = []
                came = accepted.recv(65_536)
                if not came:
                    break
                heard += carrier.feed(came)
        except ConnectionError:
            pass
        return heard


def test_a_worker_rests_before_it_comes_back_to_a_broker_that_greets_and_hangs_up(programs: Programs) -> None:
    """A bug: a greeting was success enough to forget all patience, and it came back without any rest."""
    with Acceptor() as listener:
        worker = programs.dragoman("worker", "--concurrency", 1, "--exec", "cat", "--connect", listener.url)
        began = 0.0
        for _ in range(4):
            with listener.accept() as accepted:
                began = began or time.monotonic()
                assert listener.greet(accepted) == [[b"", b"READY"]]
        took = time.monotonic() - began
        worker.terminate()
        assert worker.ends() == 0
    assert_rested_between_connections(worker, 3)
    assert took > 0.3, "rests grow as long as nothing is heard from that broker"


def test_a_worker_told_to_stop_while_it_greets_does_not_say_that_it_is_ready(programs: Programs) -> None:
    """A bug: it finished the greeting, said READY and left: the job that a broker then gave it was lost."""
    with Acceptor() as listener:
        worker = programs.dragoman("worker", "--concurrency", 1, "--exec", "cat", "--connect", listener.url)
        with listener.accept() as accepted:
            worker.terminate()
            worker.prints("stopping")
            assert listener.greet(accepted) == []
        assert worker.ends() == 0


def start_stranger_broker(programs: Programs, *words: object) -> tuple[Program, str, str]:
    broker = programs.stranger("pingpong_broker", *words)
    backend, frontend = (broker.prints(rf"{name} (tcp://\S+)") for name in ("backend", "frontend"))
    return broker, f"pingpong+{backend}", f"pingpong+{frontend}"


def test_our_worker_and_our_call_work_with_a_strangers_broker(programs: Programs, handlers: Path) -> None:
    """The first text to the letter on the other side."""
    broker, backend, frontend = start_stranger_broker(programs)
    worker = programs.dragoman("worker", "--concurrency", 1, "handlers:upper", "--connect", f"{backend}?ping_every=0.1")
    broker.prints("heard READY")
    for data in ("one", "two"):
        done = programs.run("call", "default", data, "--connect", frontend)
        assert (done.ends(), done.out) == (0, data.upper())
    broker.prints("heard PING", times=3)
    assert "reconnecting" not in worker.err
    worker.terminate()
    assert worker.ends() == 0


def test_two_callers_of_a_strangers_broker_get_their_own_answers_from_our_worker(
    programs: Programs, handlers: Path
) -> None:
    """A broker true to the letter makes a worker idle that pings at its job: ours is silent then."""
    broker, backend, frontend = start_stranger_broker(programs)
    worker = programs.dragoman(
        "worker", "--concurrency", 1, "handlers:slow", "--connect", backend
    )  # a PING would fall due in mid-job
    broker.prints("heard READY")
    callers = [programs.dragoman("call", "default", f"1.2{n}", "--connect", frontend) for n in range(2)]
    assert [(each.ends(), each.out) for each in callers] == [(0, "slept 1.20"), (0, "slept 1.21")]
    assert "reconnecting" not in worker.err


def test_our_worker_finds_a_strangers_broker_that_was_started_again(programs: Programs, handlers: Path) -> None:
    broker, backend, frontend = start_stranger_broker(programs)
    programs.dragoman("worker", "--concurrency", 1, "handlers:upper", "--connect", f"{backend}?ping_every=0.1")
    broker.prints("heard READY")
    broker.kill()
    ports = [url.rpartition(":")[2] for url in (backend, frontend)]
    again, _, _ = start_stranger_broker(programs, "--backend", ports[0], "--frontend", ports[1])
    again.prints("heard READY")
    done = programs.run("call", "default", "x", "--connect", frontend)
    assert (done.ends(), done.out) == (0, "X")


def test_our_worker_gives_up_a_strangers_broker_that_answers_no_ping_and_tries_again(
    programs: Programs, handlers: Path
) -> None:
    broker, backend, _ = start_stranger_broker(programs, "--mute")
    worker = programs.dragoman(
        "worker",
        "--concurrency",
        1,
        "handlers:upper",
        "--connect",
        f"{backend}?ping_every=0.1&broker_timeout=0.1&n_timeouts=2",
    )
    broker.prints("heard READY", times=3)
    worker.prints("nothing received from the broker for 0.2 s")


def test_our_worker_reconnects_after_our_broker_was_killed_and_started_again(
    programs: Programs, handlers: Path
) -> None:
    broker = programs.broker()
    start_worker(programs, broker, "handlers:upper")
    port, frontend = (place.rpartition(":")[2] for place in (broker.workers, broker.callers))
    broker.kill()
    again = programs.broker(url=f"pingpong+tcp://127.0.0.1:{port}?frontend={frontend}")
    done = call(programs, again, "x")
    assert (done.ends(), done.out) == (0, "X")
