"""The command `call`: results, exit codes, and errors."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from pingpong_commands import MIB, call, caller_url, start_worker

from programs import Broker, Programs, until


def test_call_prints_the_result_as_it_came(programs: Programs, handlers: Path) -> None:
    broker = programs.broker()
    start_worker(programs, broker, "handlers:upper")
    for words, given, result in (
        (["hello"], b"", b"HELLO"),
        (["-"], b"from stdin\n", b"FROM STDIN\n"),
        (["-"], b"\x00\xff\n", b"\x00\xff\n"),
        ([], b"", b""),
        (["-"], b"m" * MIB, b"M" * MIB),
    ):
        done = call(programs, broker, *words, given=given)
        assert (done.ends(), done.out_bytes, done.err) == (0, result, "")


def test_call_takes_the_listeners_whole_url(programs: Programs, handlers: Path) -> None:
    """The URL of a listener works unchanged for workers and callers."""
    broker = programs.broker("service=up&worker_expire=2&carrier_ping=1&carrier_timeout=9&job_timeout=5")
    port, frontend = (place.rpartition(":")[2] for place in (broker.workers, broker.callers))
    url = (
        f"pingpong+tcp://127.0.0.1:{port}?frontend={frontend}"
        "&service=up&worker_expire=2&carrier_ping=1&carrier_timeout=9&job_timeout=5"
    )
    programs.dragoman("worker", "--concurrency", 1, "handlers:upper", "--service", "up", "--connect", url)
    done = programs.run("call", "up", "hello", "--connect", url)
    assert (done.ends(), done.out) == (0, "HELLO")


def test_call_ends_with_1_when_the_job_is_lost_failed_or_refused(programs: Programs, handlers: Path) -> None:
    broker = programs.broker("max_payload=1MiB")
    start_worker(programs, broker, "handlers:raises")
    lost = call(programs, broker, "bad")
    assert lost.ends() == 1
    assert "lost: " in lost.err
    failed = call(programs, broker, "EXIT")
    assert failed.ends() == 1
    assert "failed: reserved word" in failed.err
    refused = call(programs, broker, "-", given=b"x" * (2 * MIB))
    assert refused.ends() == 1
    assert "refused: payload" in refused.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["default", "x", "--connect", "nonsense"], "://"),
        (["resize", "x", "--connect", "pingpong+tcp://127.0.0.1:1"], "service=resize"),
        (["default", "x", "--connect", "pingpong+tcp://127.0.0.1:1?nonsense=1"], "nonsense"),
    ],
)
def test_call_ends_with_2_when_it_is_told_nonsense(programs: Programs, words: list[str], complaint: str) -> None:
    program = programs.run("call", *words)
    assert program.ends() == 2
    assert complaint in program.err


def test_call_ends_with_3_when_there_is_no_broker(programs: Programs) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{unused.getsockname()[1]}"
        program = programs.run("call", "default", "x", "--connect", f"pingpong+tcp://{where}")
    assert program.ends() == 3
    assert where in program.err


def test_call_ends_with_3_when_whoever_listens_there_is_no_broker(programs: Programs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        program = programs.dragoman("call", "default", "x", "--connect", f"pingpong+tcp://127.0.0.1:{port}")
        accepted, _ = listening.accept()
        with accepted:
            accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            assert program.ends() == 3
    assert "HTTP" in program.err


def test_call_ends_with_3_when_the_broker_dies_before_it_answers(programs: Programs) -> None:
    broker = programs.broker()
    caller = programs.dragoman("call", "default", "x", "--connect", caller_url(broker))
    waits_for(broker)
    broker.kill()
    assert caller.ends() == 3
    assert "ended before the response" in caller.err


def waits_for(broker: Broker) -> None:
    """Wait until a client is connected to the callers' port."""
    port = int(broker.callers.rpartition(":")[2])

    def is_there() -> bool:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return any(int(row[1].rpartition(":")[2], 16) == port and row[3] == "01" for row in rows)

    until(is_there, "a caller has connected")


def test_call_at_the_workers_port_says_that_it_is_the_workers_port(programs: Programs) -> None:
    """A bug: the broker took the job for a late result and said PONG, and call printed PONG as the result."""
    broker = programs.broker()
    program = programs.run("call", "default", "x", "--connect", f"pingpong+{broker.workers}")
    assert program.ends() == 3
    assert "speaks PingPong over ZMTP (a ROUTER socket, for workers); callers connect to the frontend" in program.err
    assert program.out == ""


def test_call_and_worker_take_whatever_the_broker_let_in(programs: Programs) -> None:
    """A bug: they had the default max_payload for themselves, so a broker's larger one was of no use."""
    broker = programs.broker("max_payload=128MiB")
    worker = start_worker(programs, broker, "--exec", "cat")
    large = b"large" * (14 * MIB)
    done = call(programs, broker, "-", given=large)
    assert done.ends() == 0, done.err + worker.err
    assert done.out_bytes == large


def test_call_ends_with_4_when_its_own_time_is_over(programs: Programs) -> None:
    broker = programs.broker()
    program = call(programs, broker, "x", "--timeout", 0.3)
    assert program.ends() == 4
    assert "timed out: no answer within 0.3 s" in program.err


def test_call_ends_with_4_when_the_broker_says_timed_out(programs: Programs) -> None:
    broker = programs.broker("queue_timeout=0.2")
    program = call(programs, broker, "x")
    assert program.ends() == 4
    assert "timed out: no worker was free within 0.2 s" in program.err
