"""CPU of a request and its reply through a NATS server: our side of NATS beside nats-py.

    python -m bench.nats                     all rows, with the Python that runs it
    python -m bench.nats --python PATH       the measured programs run with another one, such as the compiled product's

It starts `nats-server`, a process that answers and a process that asks, with `--window` requests in flight, and prints
the CPU of each process for one round trip. The programs are this module itself, started again with `ask` or `answer`.
nats-server and nats-py come from the extra `test`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

from dragoman.carriers.carrier import Frame
from dragoman.carriers.nats_connect import ConnectOptions
from dragoman.cluster.nats_address import parse_nats
from dragoman.cluster.requests import Answer
from dragoman.server.event_loop import loop_factory
from dragoman.server.nats_connection import open_nats

SUBJECT = "bench.echo"
STOP = "bench.stop"
PAYLOAD = bytes(100)
TIMEOUT = 60.0
TICK = 1 / os.sysconf("SC_CLK_TCK")
CLIENTS = ("ours", "nats-py")
LOOPS = ("asyncio", "uvloop")


# ---------------------------------------------------------------- the program that answers


async def answer_ours(url: str) -> None:
    connection = await open_nats(parse_nats(url), ConnectOptions(), b"bench.r.answer", TIMEOUT)
    stopped = asyncio.Event()

    def echo(subject: Frame, reply: Frame, headers: Frame, payload: Frame, now: float) -> None:
        connection.client.publish(reply, payload)  # type: ignore[arg-type]  # a word of a line is bytes

    connection.client.subscribe(SUBJECT.encode(), echo)
    connection.client.subscribe(STOP.encode(), lambda *_: stopped.set())
    await connection.flush()
    print("ready", flush=True)
    await asyncio.wait_for(stopped.wait(), TIMEOUT)
    connection.close()


async def answer_nats_py(url: str) -> None:
    import nats

    connection = await nats.connect(url)
    stopped = asyncio.Event()

    async def echo(message: Any) -> None:
        await message.respond(message.data)

    async def stop(message: Any) -> None:
        stopped.set()

    await connection.subscribe(SUBJECT, cb=echo)
    await connection.subscribe(STOP, cb=stop)
    await connection.flush()
    print("ready", flush=True)
    await asyncio.wait_for(stopped.wait(), TIMEOUT)
    await connection.close()


# ---------------------------------------------------------------- the program that asks


async def ask_ours(url: str, count: int, window: int) -> None:
    connection = await open_nats(parse_nats(url), ConnectOptions(), b"bench.r.ask", TIMEOUT)
    loop = asyncio.get_running_loop()
    subject, done = SUBJECT.encode(), loop.create_future()
    state = {"asked": 0, "answered": 0}

    def ask() -> None:
        state["asked"] += 1
        connection.client.request(subject, PAYLOAD, b"", answered, TIMEOUT, loop.time())

    def answered(answer: Answer, now: float) -> bool:
        assert answer.payload == PAYLOAD, answer
        state["answered"] += 1
        if state["asked"] < count:
            ask()
        elif state["answered"] == count:
            done.set_result(None)
        return False

    async def work() -> None:
        for _ in range(window):
            ask()
        await done

    await measured(work, count)
    connection.client.publish(STOP.encode(), b"")
    await connection.flush()
    connection.close()


async def ask_nats_py(url: str, count: int, window: int) -> None:
    import nats

    connection = await nats.connect(url)

    async def ask_in_turn(number: int) -> None:
        for _ in range(count // window):
            answer = await connection.request(SUBJECT, PAYLOAD, timeout=TIMEOUT)
            assert answer.data == PAYLOAD

    async def work() -> None:
        await asyncio.gather(*(ask_in_turn(number) for number in range(window)))

    await measured(work, count // window * window)
    await connection.publish(STOP, b"")
    await connection.flush()
    await connection.close()


async def measured(work: Callable[[], Awaitable[None]], count: int) -> None:
    """Print the figures of this process and, so that the parent can take theirs, the beginning and the end."""
    print("begin", flush=True)
    sys.stdin.readline()
    cpu, wall = time.process_time(), time.perf_counter()
    await work()
    figures = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "count": count}
    print(json.dumps(figures), flush=True)
    sys.stdin.readline()


# ---------------------------------------------------------------- the parent


def cpu_of(process: subprocess.Popen[Any]) -> float:
    """Return the seconds of CPU that a process has used."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK


def run_once(python: str, client: str, loop: str, count: int, window: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
        chosen.close()
        program = Path(sys.executable).with_name("nats-server")
        log = Path(folder, "log")
        server = subprocess.Popen([program, "-a", "127.0.0.1", "-p", str(port), "-l", log])
        others: list[subprocess.Popen[str]] = []
        try:
            while "Server is ready" not in (log.read_text() if log.exists() else ""):
                assert server.poll() is None, "nats-server has ended"
                time.sleep(0.01)
            words = [
                python,
                "-m",
                "bench.nats",
                "--url",
                f"nats://127.0.0.1:{port}",
                "--client",
                client,
                "--loop",
                loop,
            ]
            words += ["--count", str(count), "--window", str(window)]
            for kind in ("answer", "ask"):
                pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
                others.append(subprocess.Popen([*words, kind], **pipes))
                assert others[-1].stdout is not None
                others[-1].stdout.readline()
            answerer, asker = others
            assert asker.stdin is not None
            assert asker.stdout is not None
            before = cpu_of(answerer), cpu_of(server)
            asker.stdin.write("go\n")
            asker.stdin.flush()
            figures = json.loads(asker.stdout.readline())
            after = cpu_of(answerer), cpu_of(server)
            asker.stdin.write("end\n")
            asker.stdin.flush()
            for each in others:
                each.wait(TIMEOUT)
            made = figures["count"]
            return {
                "asker_us": figures["cpu"] / made * 1e6,
                "answerer_us": (after[0] - before[0]) / made * 1e6,
                "server_us": (after[1] - before[1]) / made * 1e6,
                "rate": made / figures["wall"],
            }
        finally:
            for process in others:
                process.kill()
                process.wait()
            server.kill()
            server.wait()


def compare(python: str, repeats: int, count: int, window: int) -> None:
    print(f"{window} requests in flight, payload {len(PAYLOAD)} bytes, medians of {repeats} runs of {count} requests")
    print(f"{'client':8} {'loop':8} {'asker µs':>9} {'answerer µs':>12} {'server µs':>10} {'requests/s':>11}")
    for client in CLIENTS:
        for loop in LOOPS:
            rows = [run_once(python, client, loop, count, window) for _ in range(repeats)]
            told = {name: median(each[name] for each in rows) for name in rows[0]}
            print(
                f"{client:8} {loop:8} {told['asker_us']:9.1f} {told['answerer_us']:12.1f} {told['server_us']:10.1f} "
                f"{told['rate']:11.0f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser("python -m bench.nats", description=__doc__)
    parser.add_argument("role", nargs="?", choices=("ask", "answer"), help=argparse.SUPPRESS)
    parser.add_argument("--url", default="", help=argparse.SUPPRESS)
    parser.add_argument("--client", choices=CLIENTS, default="ours", help=argparse.SUPPRESS)
    parser.add_argument("--loop", choices=LOOPS, default="asyncio", help=argparse.SUPPRESS)
    parser.add_argument("--python", default=sys.executable, help="Python of the measured programs.")
    parser.add_argument("--repeats", type=int, default=3, help="Runs of each row (default: 3).")
    parser.add_argument("--count", type=int, default=50_000, help="Requests of a run (default: 50,000).")
    parser.add_argument("--window", type=int, default=100, help="Requests in flight (default: 100).")
    options = parser.parse_args()
    if options.role is None:
        compare(options.python, options.repeats, options.count, options.window)
        return
    with asyncio.Runner(loop_factory=loop_factory(options.loop)) as runner:
        is_ours = options.client == "ours"
        if options.role == "answer":
            runner.run((answer_ours if is_ours else answer_nats_py)(options.url))
        else:
            runner.run((ask_ours if is_ours else ask_nats_py)(options.url, options.count, options.window))


if __name__ == "__main__":
    main()
