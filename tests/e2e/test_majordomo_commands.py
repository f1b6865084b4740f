"""The commands for Majordomo: with Dragoman's broker, with one from RFC 7, and with majortomo's."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from programs import DRAGOMAN, HANDLERS, PATIENCE, Program, Programs, until

EDITIONS = ("0.1", "0.2", "0.2-delimited", "0.2-field")


@pytest.fixture
def handlers(tmp_path: Path) -> Path:
    """A folder with the handlers module, in which workers are started."""
    module = tmp_path / "handlers.py"
    module.write_text(HANDLERS.read_text())
    return module


def start_broker(programs: Programs, options: str = "", place: str = "tcp://127.0.0.1:0") -> tuple[Program, str]:
    """Start a broker. Returns it and its address for workers and callers."""
    broker = programs.start(DRAGOMAN, "serve", f"majordomo+{place}{options}", "--data", "memory", "--strict")
    return broker, f"majordomo+{broker.prints(r'majordomo +((?:tcp|ipc)://[^ ]+) +both')}"


def start_worker(programs: Programs, broker: Program, url: str, *words: object, count: int = 1) -> Program:
    """Start a worker, and wait until it has joined."""
    known = broker.err.count("worker joined")
    worker = programs.dragoman("worker", "--concurrency", 1, *words, "--connect", url)
    until(
        lambda: broker.err.count("worker joined") >= known + count or worker.process.poll() is not None, "it has joined"
    )
    assert worker.process.poll() is None, worker.err
    return worker


def start_call(programs: Programs, url: str, data: str, *words: object, service: str = "default") -> Program:
    return programs.dragoman("call", service, data, *words, "--connect", url)


def done(program: Program) -> tuple[int, str]:
    return program.ends(), program.out


def call(programs: Programs, url: str, data: str, *words: object, service: str = "default") -> tuple[int, str]:
    return done(start_call(programs, url, data, *words, service=service))


# -------------------------------------------------------------------- with our broker


def test_what_serve_suggests_to_try_works_as_printed(programs: Programs, tmp_path: Path) -> None:
    broker, _ = start_broker(programs, place=f"ipc://{tmp_path}/m")
    broker.prints(r"dragoman call .*\n")
    suggested = re.findall(r"^  \S*dragoman ((?:worker|call) .*)$", broker.out, re.MULTILINE)
    assert [line.split()[0] for line in suggested] == ["worker", "call"]
    worker, caller = (programs.start("sh", "-c", f"exec {DRAGOMAN} {line}") for line in suggested)
    assert done(caller) == (0, "HELLO"), caller.err
    assert worker.process.poll() is None


def test_worker_and_call_in_every_edition(programs: Programs, handlers: Path) -> None:
    _, url = start_broker(programs)
    for edition in EDITIONS:
        programs.dragoman(
            "worker",
            "--concurrency",
            1,
            "handlers:upper",
            "--service",
            edition,
            "--connect",
            f"{url}?edition={edition}",
        )
    callers = [
        start_call(programs, f"{url}?edition={theirs}", f"{ours} {theirs}", service=ours)
        for ours in EDITIONS
        for theirs in ("0.1", ours)
    ]
    expected = [(0, f"{ours} {theirs}".upper()) for ours in EDITIONS for theirs in ("0.1", ours)]
    assert [done(each) for each in callers] == expected


def test_call_can_ask_whether_a_service_is_there(programs: Programs) -> None:
    broker, url = start_broker(programs)
    start_worker(programs, broker, url, "--exec", "cat", "--service", "copy")
    assert call(programs, url, "copy", service="mmi.service") == (0, "200")
    assert call(programs, url, "lose", service="mmi.service") == (0, "404")


def test_several_at_once_have_a_connection_each(programs: Programs, handlers: Path) -> None:
    broker, url = start_broker(programs)
    start_worker(programs, broker, url, "handlers:meets", "--concurrency", 3, count=3)
    callers = [start_call(programs, url, "3") for _ in range(3)]
    assert [done(each) for each in callers] == [(0, "met 3")] * 3


def test_a_failure_is_silence_for_the_caller_and_the_worker_comes_back(programs: Programs, handlers: Path) -> None:
    broker, url = start_broker(programs)
    worker = start_worker(programs, broker, url, "handlers:raises")
    failed = start_call(programs, url, "bad", "--timeout", 0.5)
    assert failed.ends() == 4
    assert "no answer within 0.5 s; Majordomo has no message for a job that failed" in failed.err
    worker.prints("reconnecting: ")
    assert "its worker sent DISCONNECT" in broker.err
    assert call(programs, url, "fine") == (0, "good")


def test_reply_timeout_is_how_long_call_waits(programs: Programs) -> None:
    _, url = start_broker(programs)
    waiting = start_call(programs, f"{url}?reply_timeout=0.3", "x")
    assert waiting.ends() == 4
    assert "no answer within 0.3 s" in waiting.err


def test_a_worker_told_to_stop_delivers_what_it_has_in_hand(programs: Programs, handlers: Path) -> None:
    broker, url = start_broker(programs)
    worker = start_worker(programs, broker, url, "handlers:slow")
    caller = start_call(programs, url, "0.6")
    worker.prints("working")
    worker.terminate()
    assert done(caller) == (0, "slept 0.6")
    assert worker.ends() == 0
    broker.prints("its worker sent DISCONNECT")


def test_a_worker_that_works_for_longer_than_its_lease_is_kept(programs: Programs, handlers: Path) -> None:
    broker, url = start_broker(programs, "?heartbeat=0.1&liveness=2")
    start_worker(programs, broker, f"{url}?heartbeat=0.05&liveness=100", "handlers:slow")
    assert call(programs, url, "0.5") == (0, "slept 0.5")


def test_a_worker_offers_one_service(programs: Programs) -> None:
    url = "majordomo+tcp://127.0.0.1:1"
    program = programs.run("worker", "--exec", "cat", "--service", "a", "--service", "b", "--connect", url)
    assert program.ends() == 2
    assert "one service" in program.err


def test_serve_refuses_a_frontend_which_majordomo_has_not(programs: Programs) -> None:
    program = programs.run("serve", "majordomo+tcp://127.0.0.1:0?frontend=0", "--data", "memory")
    assert program.ends() == 2
    assert "majordomo has no frontend" in program.err


def test_on_sigterm_the_broker_waits_for_what_runs(programs: Programs, handlers: Path) -> None:
    broker, url = start_broker(programs)
    worker = start_worker(programs, broker, url, "handlers:slow")
    running = start_call(programs, url, "0.6")
    worker.prints("working")
    broker.terminate()
    assert done(running) == (0, "slept 0.6")
    assert broker.ends() == 0


# -------------------------------------------------------------------- with brokers of others


def start_stranger_broker(programs: Programs, heartbeat: float = 2.5) -> tuple[Program, str]:
    broker = programs.stranger("majordomo_broker", heartbeat)
    return broker, "majordomo+" + broker.prints(r"at (\S+)")


def test_our_worker_and_our_call_work_with_a_broker_from_rfc_7(programs: Programs, handlers: Path) -> None:
    broker, url = start_stranger_broker(programs, heartbeat=0.1)
    worker = programs.dragoman(
        "worker", "handlers:upper", "--service", "shout", "--connect", f"{url}?heartbeat=0.1&liveness=100"
    )
    broker.prints("heard HEARTBEAT", times=3)
    assert call(programs, url, "one", service="shout") == (0, "ONE")
    assert call(programs, url, "two", service="shout") == (0, "TWO")
    assert "reconnecting" not in worker.err
    worker.terminate()
    broker.prints("heard DISCONNECT")
    assert worker.ends() == 0


def test_a_broker_that_says_nothing_to_workers_at_work_is_not_given_up(programs: Programs, handlers: Path) -> None:
    broker, url = start_stranger_broker(programs, heartbeat=0.1)
    worker = programs.dragoman(
        "worker", "--concurrency", 1, "handlers:slow", "--connect", f"{url}?heartbeat=0.25&liveness=4"
    )
    broker.prints("heard READY")
    assert call(programs, url, "1.5") == (0, "slept 1.5")
    assert "nothing heard" not in worker.err


def test_our_worker_and_our_call_work_with_majortomos_broker(
    programs: Programs, handlers: Path, tmp_path: Path
) -> None:
    place = f"ipc://{tmp_path}/tomo"
    programs.start(sys.executable, "-m", "majortomo.broker", "-b", place)
    url = f"majordomo+{place}?edition=0.2-field"
    until((tmp_path / "tomo").exists, "it listens")
    programs.dragoman("worker", "--concurrency", 1, "handlers:upper", "--service", "shout", "--connect", url)
    assert call(programs, url, "hello", service="shout") == (0, "HELLO")
    assert call(programs, url, "again", service="shout") == (0, "AGAIN")


@pytest.fixture
def mute() -> Iterator[zmq.Socket]:
    context = zmq.Context()
    listener = context.socket(zmq.ROUTER)
    listener.linger = 0
    listener.rcvtimeo = int(PATIENCE * 1000)
    listener.bind("tcp://127.0.0.1:*")
    yield listener
    listener.close()
    context.term()


def test_our_worker_gives_up_a_broker_that_says_nothing_and_comes_back_on_disconnect(
    programs: Programs, mute: zmq.Socket
) -> None:
    url = f"majordomo+{mute.getsockopt_string(zmq.LAST_ENDPOINT)}?heartbeat=0.4&liveness=2"
    worker = programs.dragoman("worker", "--concurrency", 1, "--exec", "cat", "--connect", url)
    ready = [b"", b"MDPW01", b"\x01", b"default"]
    first, *said = mute.recv_multipart()
    assert said == ready
    worker.prints("nothing received from the broker for 0.8 s")
    while (message := mute.recv_multipart())[1:] != ready:
        assert message[0] == first
        assert message[1:] == [b"", b"MDPW01", b"\x04"]
    second = message[0]
    assert second != first
    mute.send_multipart([second, b"", b"MDPW01", b"\x05"])
    while (message := mute.recv_multipart())[1:] != ready:
        assert message[0] == second
    mute.send_multipart([message[0], b"", b"MDPW01", b"\x02", b"whose", b"", b"one", b"two"])
    while (answer := mute.recv_multipart())[3] != b"\x03":
        assert answer[3] == b"\x04"
    assert answer == [message[0], b"", b"MDPW01", b"\x03", b"whose", b"", b"onetwo"]
