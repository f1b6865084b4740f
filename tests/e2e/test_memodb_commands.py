"""The commands for MemoDB: one listener for workers and callers, several jobs at once, and missing replies."""

from __future__ import annotations

import io
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import cbor2
import pynng
import pytest

from programs import DRAGOMAN, HANDLERS, PATIENCE, Program, Programs, until

MIB = 1 << 20
READY, JOB, RESULT, HEARTBEAT, DISCONNECT = range(1, 6)


@pytest.fixture
def handlers(tmp_path: Path) -> Path:
    """A folder with the handlers module, in which workers are started."""
    module = tmp_path / "handlers.py"
    module.write_text(HANDLERS.read_text())
    return module


def start_broker(programs: Programs, url: str = "memodb+tcp://127.0.0.1:0", *flags: object) -> tuple[Program, str]:
    """Start a broker. Returns it and its address for workers and callers."""
    broker = programs.start(DRAGOMAN, "serve", url, "--data", "memory", "--strict", *flags)
    return broker, f"memodb+{broker.prints(r'memodb +((?:tcp|ipc)://[^ ]+) +both')}"


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


def call(programs: Programs, url: str, data: str, *words: object, service: str = "default") -> Program:
    """Run a call to its end."""
    made = start_call(programs, url, data, *words, service=service)
    made.ends()
    return made


def done(program: Program) -> tuple[int, str]:
    return program.ends(), program.out


def restart(programs: Programs, broker: Program, url: str) -> Program:
    """Send SIGKILL, and start another broker at the same address."""
    broker.kill()
    return start_broker(programs, url)[0]


# -------------------------------------------------------------------- serve


def test_serve_says_who_may_come_in_where(programs: Programs) -> None:
    broker, _ = start_broker(programs)
    assert re.search(r"memodb +tcp://127\.0\.0\.1:\d+ +both +workers and callers; any service", broker.out)


@pytest.mark.parametrize("kind", ["tcp", "tcp6", "ipc"])
def test_what_serve_suggests_to_try_works_as_printed(programs: Programs, tmp_path: Path, kind: str) -> None:
    places = {"tcp": "tcp://127.0.0.1:0", "tcp6": "tcp://[::1]:0", "ipc": f"ipc://{tmp_path}/s"}
    broker, _ = start_broker(programs, f"memodb+{places[kind]}")
    broker.prints(r"dragoman call .*\n")
    suggested = re.findall(r"^  \S*dragoman ((?:worker|call) .*)$", broker.out, re.MULTILINE)
    assert [line.split()[0] for line in suggested] == ["worker", "call"]
    worker, caller = (programs.start("sh", "-c", f"exec {DRAGOMAN} {line}") for line in suggested)
    assert done(caller) == (0, "HELLO"), caller.err
    assert worker.process.poll() is None


REFUSED = [
    ("memodb+ws://127.0.0.1:0", "ws"),
    ("memodb+inproc://name", "inproc"),
    ("memodb+zt://name:1", "zt"),
    ("memodb+tls+tcp://127.0.0.1:0", "tls"),
    ("memodb+ipc://@name", "abstract sockets are not supported"),
    ("memodb+abstract://name", "abstract"),
    ("memodb+tcp://127.0.0.1", "port"),
    ("memodb+tcp://127.0.0.1:1?nonsense=1", "nonsense"),
]


@pytest.mark.parametrize(("url", "complaint"), REFUSED)
@pytest.mark.parametrize("command", ["serve", "worker", "call"])
def test_an_address_that_cannot_be_used_ends_with_2_and_says_why(
    programs: Programs, command: str, url: str, complaint: str
) -> None:
    words: dict[str, list[str]] = {
        "serve": [url, "--data", "memory"],
        "worker": ["--exec", "cat", "--connect", url],
        "call": ["default", "x", "--connect", url],
    }
    program = programs.dragoman(command, *words[command])
    assert program.ends() == 2
    assert complaint in program.err
    assert "Traceback" not in program.err


def test_serve_refuses_a_frontend_which_memodb_has_not(programs: Programs) -> None:
    program = programs.run("serve", "memodb+tcp://127.0.0.1:0?frontend=0", "--data", "memory")
    assert program.ends() == 2
    assert "memodb has no frontend" in program.err


def test_serve_off_loopback_needs_insecure(programs: Programs) -> None:
    program = programs.run("serve", "memodb+tcp://0.0.0.0:0", "--data", "memory")
    assert program.ends() == 2
    assert "insecure=true" in program.err


def test_serve_ends_with_73_when_its_place_is_taken(programs: Programs, tmp_path: Path) -> None:
    for place in ("tcp://127.0.0.1:0", f"ipc://{tmp_path}/s"):
        _, url = start_broker(programs, f"memodb+{place}")
        second = programs.run("serve", url, "--data", "memory")
        assert second.ends() == 73
        assert "Traceback" not in second.err


# -------------------------------------------------------------------- call


def test_call_prints_the_result_as_it_came(programs: Programs, handlers: Path, tmp_path: Path) -> None:
    broker, url = start_broker(programs, f"memodb+ipc://{tmp_path}/s")
    start_worker(programs, broker, url, "handlers:upper", "--service", "up")
    for words, given, result in (
        (["hello"], b"", b"HELLO"),
        (["-"], b"\x00\xff\n", b"\x00\xff\n"),
        ([], b"", b""),
        (["-"], b"m" * (16 * MIB), b"M" * (16 * MIB)),
    ):
        made = programs.run("call", "up", *words, "--connect", url, given=given)
        assert (made.ends(), made.err) == (0, "")
        assert made.out_bytes == result


def test_call_and_worker_take_the_listeners_whole_url(programs: Programs, handlers: Path) -> None:
    options = "?heartbeat_after=2&heartbeat_timeout=3&queue_timeout=5&detach_timeout=9&max_payload=1MiB&attempts=2"
    broker, url = start_broker(programs, f"memodb+tcp://127.0.0.1:0{options}")
    start_worker(programs, broker, url + options, "handlers:upper")
    assert done(call(programs, url + options, "hello")) == (0, "HELLO")


def test_call_ends_with_3_when_nobody_listens(programs: Programs, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        for where in (f"tcp://127.0.0.1:{unused.getsockname()[1]}", f"ipc://{tmp_path}/nobody"):
            program = call(programs, f"memodb+{where}", "x")
            assert program.ends() == 3
            assert where.partition("://")[2] in program.err


def test_call_ends_with_3_at_a_pingpong_port(programs: Programs) -> None:
    broker = programs.broker()
    program = call(programs, f"memodb+{broker.callers}", "x")
    assert program.ends() == 3
    assert "speaks PingPong or Powerhose over ZMTP (a ROUTER socket, for callers), not MemoDB" in program.err


def test_call_ends_with_4_after_silence_and_hints_at_the_reason(programs: Programs) -> None:
    _, url = start_broker(programs)
    program = call(programs, url, "x", "--timeout", 0.5)
    assert program.ends() == 4
    assert "timed out: no answer within 0.5 s; MemoDB has no message for a job that failed" in program.err
    assert program.out == ""


@pytest.mark.parametrize("name", ["", "x" * 129, "a\nb"])
@pytest.mark.parametrize("command", ["call", "worker"])
def test_a_bad_service_name_ends_with_2_before_anybody_is_asked(programs: Programs, command: str, name: str) -> None:
    url = "memodb+tcp://127.0.0.1:1"
    words = [name, "x"] if command == "call" else ["--exec", "cat", "--service", "good", "--service", name]
    program = programs.run(command, *words, "--connect", url)
    assert program.ends() == 2
    assert "bad service name" in program.err
    assert "Traceback" not in program.err


@pytest.mark.parametrize("timeout", ["1e17", "1e300", "inf"])
def test_any_length_of_time_may_be_said(programs: Programs, handlers: Path, timeout: str) -> None:
    """A bug: what eight bytes of milliseconds cannot hold came up as an OverflowError."""
    broker, url = start_broker(programs)
    start_worker(programs, broker, url, "handlers:upper")
    made = call(programs, url, "hello", "--timeout", timeout)
    assert done(made) == (0, "HELLO"), made.err


def test_a_call_outlives_its_broker(programs: Programs, handlers: Path) -> None:
    """A bug: a first attempt to reconnect that failed was taken for success, and the call waited for nothing."""
    broker, url = start_broker(programs)
    worker = start_worker(programs, broker, url, "handlers:slow")
    caller = start_call(programs, url, "0.5", "--timeout", 14)
    worker.prints("working")
    broker.kill()
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 1.0, "it has tried to come back more than once")
    start_broker(programs, url)
    assert done(caller) == (0, "slept 0.5"), caller.err


def test_a_call_whose_connection_is_cut_is_answered_on_the_next(programs: Programs) -> None:
    """The acceptor hangs up on a caller that has asked; the caller asks again, under the same id."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE)
        caller = start_call(programs, f"memodb+tcp://127.0.0.1:{listening.getsockname()[1]}", "x", "--timeout", 10)
        asked = []
        for _ in range(3):
            accepted, _ = listening.accept()
            with accepted:
                accepted.settimeout(PATIENCE)
                asked.append(greet_and_hear(accepted))
        accepted, _ = listening.accept()
        with accepted:
            accepted.settimeout(PATIENCE)
            asked.append(greet_and_hear(accepted))
            answer = asked[0][:4] + memo(RESULT, b"", payload=b"at last")
            accepted.sendall(len(answer).to_bytes(8, "big") + answer)
            assert done(caller) == (0, "at last")
    assert asked == [asked[0]] * 4
    assert asked[0][4:] == memo(JOB, b"", "default", 10_000, payload=b"x")


def test_an_answer_that_call_cannot_read_ends_with_1(programs: Programs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE)
        caller = start_call(programs, f"memodb+tcp://127.0.0.1:{listening.getsockname()[1]}", "x")
        accepted, _ = listening.accept()
        with accepted:
            accepted.settimeout(PATIENCE)
            asked = greet_and_hear(accepted)
            answer = asked[:4] + memo(HEARTBEAT, b"")
            accepted.sendall(len(answer).to_bytes(8, "big") + answer)
            assert caller.ends() == 1
    assert "invalid response from the broker" in caller.err
    assert "HEARTBEAT came instead of RESULT" in caller.err


def memo(*items: object, payload: bytes = b"") -> bytes:
    return cbor2.dumps(["memo01", *items], canonical=True) + payload


def greet_and_hear(accepted: socket.socket) -> bytes:
    """Act as a REP that takes one message. Returns its request id and the rest."""
    accepted.sendall(b"\0SP\0\0\x31\0\0")
    reading = accepted.makefile("rb")
    assert reading.read(8) == b"\0SP\0\0\x30\0\0"
    return reading.read(int.from_bytes(reading.read(8), "big"))


# -------------------------------------------------------------------- worker


def test_a_worker_serves_each_of_its_services(programs: Programs, handlers: Path) -> None:
    broker, url = start_broker(programs, "memodb+tcp://127.0.0.1:0?queue_timeout=0.3")
    start_worker(programs, broker, url, "handlers:upper", "--service", "a", "--service", "b")
    assert done(call(programs, url, "one", service="a")) == (0, "ONE")
    assert done(call(programs, url, "two", service="b")) == (0, "TWO")
    assert call(programs, url, "three", "--timeout", 0.5, service="c").ends() == 4


def test_three_jobs_really_run_at_once_over_one_connection(programs: Programs, handlers: Path) -> None:
    broker, url = start_broker(programs)
    words = ("handlers:meets", "--service", "a", "--service", "b", "--concurrency", 3)
    worker = start_worker(programs, broker, url, *words, count=3)
    callers = [start_call(programs, url, "3", service=service) for service in ("a", "b", "a")]
    assert [done(each) for each in callers] == [(0, "met 3")] * 3
    assert worker.err.count("connected to") == 1
    assert len(re.findall(r"worker joined", broker.err)) == 3


def test_exec_runs_as_many_programs_at_once(programs: Programs, tmp_path: Path) -> None:
    broker, url = start_broker(programs)
    meet = "sh -c 'touch here-$$; while test $(ls | grep -c here-) -lt 3; do sleep 0.02; done; echo met'"
    start_worker(programs, broker, url, "--exec", meet, "--concurrency", 3, count=3)
    callers = [start_call(programs, url, "x") for _ in range(3)]
    assert [done(each) for each in callers] == [(0, "met\n")] * 3


def test_pingpong_workers_of_one_process_have_a_connection_each(programs: Programs, handlers: Path) -> None:
    """That wire cannot tell several workers of a connection apart."""
    broker = programs.broker()
    url = f"pingpong+{broker.workers}"
    worker = start_worker(programs, broker, url, "handlers:meets", "--concurrency", 3, count=3)
    callers = [start_call(programs, f"pingpong+{broker.callers}", "3") for _ in range(3)]
    assert [done(each) for each in callers] == [(0, "met 3")] * 3
    assert worker.err.count("connected to") == 3
    worker.terminate()
    assert worker.ends() == 0


def test_a_handler_that_raises_costs_its_job_only(programs: Programs, handlers: Path) -> None:
    """MemoDB has no message for a failure, so the caller gets none; the reason is in the worker's log."""
    broker, url = start_broker(programs)
    worker = start_worker(programs, broker, url, "handlers:raises")
    failed = call(programs, url, "bad", "--timeout", 1)
    assert failed.ends() == 4
    assert "no message for a job that failed" in failed.err
    worker.prints("ValueError: this payload is bad")
    assert done(call(programs, url, "fine")) == (0, "good")
    assert worker.err.count("connected to") == 1
    assert "reconnecting" not in worker.err


def test_a_handler_that_ends_its_process_costs_its_job_only(programs: Programs, handlers: Path) -> None:
    broker, url = start_broker(programs)
    worker = start_worker(programs, broker, url, "handlers:dies", "--concurrency", 2, count=2)
    assert call(programs, url, "die", "--timeout", 1).ends() == 4
    worker.prints("exit code 7")
    for _ in range(4):
        assert done(call(programs, url, "again")) == (0, "alive")


def test_a_program_that_fails_costs_its_job_only(programs: Programs) -> None:
    broker, url = start_broker(programs)
    worker = start_worker(programs, broker, url, "--exec", "sh -c 'read line; echo no luck >&2; exit $line'")
    assert call(programs, url, "3", "--timeout", 1).ends() == 4
    worker.prints("exit code 3: no luck")
    assert call(programs, url, "0").ends() == 0


def test_a_result_over_the_brokers_max_payload_costs_its_job_only(programs: Programs, handlers: Path) -> None:
    """A bug: the broker hung up at its length, and the worker came back with it, for ever, and did nothing else."""
    broker, url = start_broker(programs, "memodb+tcp://127.0.0.1:0?max_payload=1MiB")
    start_worker(programs, broker, url, "handlers:large", "--concurrency", 2, count=2)
    assert call(programs, url, str(4 * MIB), "--timeout", 1).ends() == 4
    callers = [start_call(programs, url, "3", "--timeout", 12) for _ in range(3)]
    assert [done(each) for each in callers] == [(0, "xxx")] * 3


def test_a_worker_comes_back_by_itself_when_the_broker_does(programs: Programs, handlers: Path) -> None:
    broker, url = start_broker(programs)
    start_worker(programs, broker, url, "handlers:upper", "--concurrency", 2, count=2)
    assert done(call(programs, url, "one")) == (0, "ONE")
    for turn in ("two", "three"):
        broker = restart(programs, broker, url)
        assert done(call(programs, url, turn)) == (0, turn.upper())
        until(lambda broker=broker: broker.err.count("worker joined") == 2, "both are back")


# -------------------------------------------------------------------- a worker stops


def test_an_idle_worker_leaves_at_once_on_sigterm(programs: Programs, handlers: Path) -> None:
    """It does not wait until its requests are answered, after heartbeat_after."""
    broker, url = start_broker(programs, "memodb+tcp://127.0.0.1:0?heartbeat_after=60")
    worker = start_worker(programs, broker, f"{url}?heartbeat_after=60", "handlers:upper", "--concurrency", 3, count=3)
    worker.terminate()
    assert worker.ends() == 0


def test_jobs_in_hand_on_sigterm_are_done_and_their_results_delivered(programs: Programs, handlers: Path) -> None:
    broker, url = start_broker(programs)
    worker = start_worker(programs, broker, url, "handlers:slow", "--concurrency", 3, count=3)
    callers = [start_call(programs, url, f"0.{number}") for number in (5, 7, 9)]
    worker.prints("working", times=3)
    worker.terminate()
    assert [done(each) for each in callers] == [(0, f"slept 0.{number}") for number in (5, 7, 9)]
    assert worker.ends() == 0
    assert "worker out of turn" not in broker.err


def test_a_worker_with_one_job_of_three_ends_it_and_takes_no_other(programs: Programs, handlers: Path) -> None:
    broker, url = start_broker(programs)
    worker = start_worker(programs, broker, url, "handlers:slow", "--concurrency", 3, count=3)
    busy = start_call(programs, url, "1.0")
    worker.prints("working 1.0")
    worker.terminate()
    assert done(busy) == (0, "slept 1.0")
    assert worker.ends() == 0


def test_a_large_result_in_hand_on_sigterm_arrives_whole(programs: Programs, handlers: Path) -> None:
    broker, url = start_broker(programs)
    worker = start_worker(programs, broker, url, "handlers:large")
    caller = start_call(programs, url, str(48 * MIB))
    worker.prints("working")
    worker.terminate()
    assert caller.ends() == 0, caller.err
    assert len(caller.out_bytes) == 48 * MIB
    assert worker.ends() == 0


def test_a_second_signal_stops_a_busy_worker_at_once(programs: Programs, handlers: Path) -> None:
    broker, url = start_broker(programs)
    worker = start_worker(programs, broker, url, "handlers:slow", "--concurrency", 2, count=2)
    start_call(programs, url, "60")
    worker.prints("working")
    worker.terminate()
    worker.prints("stopping")
    worker.terminate()
    assert worker.ends() == 0


def test_a_result_that_waits_for_a_connection_is_delivered_in_spite_of_sigterm(
    programs: Programs, handlers: Path
) -> None:
    """A bug: the worker left with it, because nothing was under way any more."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE)
        url = f"memodb+tcp://127.0.0.1:{listening.getsockname()[1]}"
        worker = programs.dragoman("worker", "--concurrency", 1, "handlers:slow", "--connect", url)
        accepted, _ = listening.accept()
        with accepted:
            accepted.settimeout(PATIENCE)
            asked = greet_and_hear(accepted)
            answer = asked[:4] + memo(JOB, b"w1", "default", 60_000, payload=b"0.3")
            accepted.sendall(len(answer).to_bytes(8, "big") + answer)
            worker.prints("working")
        accepted, _ = listening.accept()  # it is back, and waits for our greeting
        with accepted:
            accepted.settimeout(PATIENCE)
            began = time.monotonic()
            until(lambda: time.monotonic() - began > 0.7, "its job is done")
            worker.terminate()
            worker.prints("stopping")
            said = greet_and_hear(accepted)
            assert said[4:] == memo(RESULT, b"w1", payload=b"slept 0.3")
        assert worker.ends() == 0


def test_a_worker_that_is_stopping_rests_before_it_comes_back_to_a_broker_that_hangs_up(
    programs: Programs, handlers: Path
) -> None:
    """A bug: with a job in hand it came back without any rest, hundreds of times a second."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE)
        url = f"memodb+tcp://127.0.0.1:{listening.getsockname()[1]}"
        worker = programs.dragoman("worker", "--concurrency", 1, "handlers:slow", "--connect", url)
        accepted, _ = listening.accept()
        with accepted:
            accepted.settimeout(PATIENCE)
            asked = greet_and_hear(accepted)
            answer = asked[:4] + memo(JOB, b"w1", "default", 60_000, payload=b"60")
            accepted.sendall(len(answer).to_bytes(8, "big") + answer)
            worker.prints("working")
            worker.terminate()
            worker.prints("stopping")
        began = time.monotonic()
        for _ in range(4):
            accepted, _ = listening.accept()
            with accepted:
                accepted.sendall(b"\0SP\0\0\x31\0\0")
                accepted.settimeout(PATIENCE)
                assert accepted.recv(8) == b"\0SP\0\0\x30\0\0"
        took = time.monotonic() - began
        worker.terminate()
        assert worker.ends() == 0
    assert took > 0.3, "rests grow as long as nothing is heard from that broker"


LOAD = """
import asyncio, os, sys
from dragoman import AsyncClient

async def main():
    url, end = sys.argv[1:]
    count = 0

    async def caller(number):
        async with AsyncClient(url) as client:
            await keep_calling(client, number)

    async def keep_calling(client, number):
        nonlocal count
        turn = 0
        while count <= 30 or not os.path.exists(end):
            payload = b"0.01 %d %d" % (number, turn)
            result = await client.call("default", payload, timeout=60)
            assert result == b"slept " + payload, result
            turn += 1
            count += 1
            if count == 5:
                print("begun", flush=True)

    await asyncio.gather(*(caller(number) for number in range(6)))
    print("calls", count)

asyncio.run(main())
"""


def test_under_load_the_end_of_one_of_two_workers_loses_no_call(programs: Programs, handlers: Path) -> None:
    broker, url = start_broker(programs, "memodb+tcp://127.0.0.1:0?detach_timeout=60")
    words = ("handlers:slow", "--concurrency", 2)
    stays = start_worker(programs, broker, url, *words, count=2)
    end = programs.folder / "end"
    load = programs.start(programs_python(), "-c", LOAD, url, end)
    load.prints("begun")
    for _ in range(2):
        goes = start_worker(programs, broker, url, *words, count=2)
        goes.prints("working", times=5)
        goes.terminate()
        assert goes.ends() == 0, goes.err
    end.touch()
    assert load.ends() == 0, load.err + broker.err
    assert int(load.prints(r"calls (\d+)")) > 30
    assert stays.process.poll() is None
    assert "silent" not in load.err


def programs_python() -> str:
    return str(Path(DRAGOMAN).with_name("python"))


# -------------------------------------------------------------------- the broker stops


def test_on_sigterm_the_broker_waits_for_what_runs_and_is_silent_about_the_rest(
    programs: Programs, handlers: Path
) -> None:
    broker, url = start_broker(programs, "memodb+tcp://127.0.0.1:0", "http://127.0.0.1:0")
    metrics = broker.prints(r"http +(http://\S+)").rstrip("/") + "/metrics"
    worker = start_worker(programs, broker, url, "handlers:waits")
    running = start_call(programs, url, "end")
    worker.prints("working")
    waiting = start_call(programs, url, "x", "--timeout", 1.5)
    until(lambda: b"\ndragoman_jobs_accepted_total 2\n" in urlopen(metrics).read(), "both calls are known")
    broker.terminate()
    broker.prints("draining")
    (programs.folder / "end").touch()
    assert done(running) == (0, "END")
    assert broker.ends() == 0
    assert waiting.ends() == 4
    worker.terminate()
    assert worker.ends() == 0


# -------------------------------------------------------------------- with a stranger's broker


def start_stranger_broker(programs: Programs, heartbeat: float = 10.0, place: str = "") -> tuple[Program, str]:
    broker = programs.stranger("memodb_broker", place or "tcp://127.0.0.1:0", heartbeat)
    where = broker.prints(r"listens (\S+)")
    return broker, f"memodb+{place or f'tcp://{where}'}"


def test_our_worker_and_our_call_work_with_a_strangers_broker(
    programs: Programs, handlers: Path, tmp_path: Path
) -> None:
    for place in ("", f"ipc://{tmp_path}/s"):
        broker, url = start_stranger_broker(programs, heartbeat=0.1, place=place)
        worker = programs.dragoman(
            "worker", "--concurrency", 1, "handlers:upper", "--service", "a", "--service", "b", "--connect", url
        )
        broker.prints(r"heard 1  \['a', 'b'\]")
        broker.prints("heard 4 [0-9a-f]{8}", times=3)
        assert done(call(programs, url, "one", service="a")) == (0, "ONE")
        assert done(call(programs, url, "two", service="b")) == (0, "TWO")
        assert "reconnecting" not in worker.err
        worker.terminate()
        assert worker.ends() == 0


def test_our_three_at_once_work_with_a_strangers_broker_and_say_goodbye_to_it(
    programs: Programs, handlers: Path
) -> None:
    broker, url = start_stranger_broker(programs)
    worker = programs.dragoman("worker", "--concurrency", 1, "handlers:slow", "--concurrency", 3, "--connect", url)
    broker.prints("heard 1 ", times=3)
    callers = [start_call(programs, url, f"0.5{number}") for number in range(3)]
    worker.prints("working", times=3)
    worker.terminate()
    assert [done(each) for each in callers] == [(0, f"slept 0.5{number}") for number in range(3)]
    assert worker.ends() == 0
    assert len(re.findall("heard 3 [0-9a-f]{8} True", broker.out)) == 3


def test_a_failure_is_understood_by_a_strangers_broker(programs: Programs, handlers: Path) -> None:
    """An unexpected HEARTBEAT puts the broker out of sync: it sends DISCONNECT, and the worker starts again."""
    broker, url = start_stranger_broker(programs)
    programs.dragoman("worker", "--concurrency", 1, "handlers:raises", "--connect", url)
    broker.prints("heard 1 ")
    assert call(programs, url, "bad", "--timeout", 1).ends() == 4
    broker.prints("heard 1 ", times=2)
    assert done(call(programs, url, "fine")) == (0, "good")


def test_our_worker_finds_a_strangers_broker_that_was_started_again(programs: Programs, handlers: Path) -> None:
    broker, url = start_stranger_broker(programs, heartbeat=0.1)
    programs.dragoman("worker", "--concurrency", 1, "handlers:upper", "--connect", url)
    broker.prints("heard 4")
    broker.kill()
    second, _ = start_stranger_broker(programs, place=url.removeprefix("memodb+"))
    second.prints("heard 4")  # under an id that nobody knows there
    second.prints("heard 1 ")
    assert done(call(programs, url, "x")) == (0, "X")


@pytest.fixture
def mute() -> Iterator[Any]:
    with pynng.Rep0(listen="tcp://127.0.0.1:0", recv_timeout=int(PATIENCE * 1000)) as listening:
        yield listening


def test_our_worker_gives_up_a_connection_on_which_no_answer_comes(programs: Programs, mute: Any) -> None:
    url = f"memodb+tcp://{mute.listeners[0].local_address}"
    worker = programs.dragoman("worker", "--concurrency", 1, "--exec", "cat", "--connect", f"{url}?heartbeat_after=0.1")
    first = mute.recv()
    assert cbor2.CBORDecoder(io.BytesIO(first)).decode() == ["memo01", READY, b"", ["default"]]
    worker.prints("nothing received from the broker for 0.3 s")
    assert mute.recv() == first
    mute.send(memo(JOB, b"w", "default", 1000, payload=b"hello"))
    assert mute.recv() == memo(RESULT, b"w", payload=b"hello")
