"""Memory of a broker per idle worker and per waiting job, for two builds: `python -m bench.memory OTHER`.

Each run starts a broker of its own, without a store, and reads its resident memory before and after: 1,000 PingPong
workers join; then 20,000 background jobs of 100 bytes wait for a service without workers. Both builds take turns.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

import zmq

from bench.brokers import free_ports

WORKERS = 1_000
JOBS = 20_000
BODY = b"x" * 100
PAGE = os.sysconf("SC_PAGE_SIZE")


def resident(pid: int) -> int:
    """Bytes of memory that the process occupies."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


def ask(port: int, method: str, path: str, body: bytes | None = None) -> bytes:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request(method, path, body)
        return connection.getresponse().read()


def wait_until_ready(port: int) -> None:
    for _ in range(300):
        try:
            ask(port, "GET", "/readyz")
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError("the broker did not start within 15 s")


def per_worker(pid: int, http_port: int, port: int) -> float:
    before = resident(pid)
    with ExitStack() as stack:
        context = zmq.Context()
        stack.callback(context.destroy, linger=0)
        context.set(zmq.MAX_SOCKETS, 2 * WORKERS)
        dealers = [context.socket(zmq.DEALER) for _ in range(WORKERS)]
        for dealer in dealers:
            dealer.connect(f"tcp://127.0.0.1:{port}")
            dealer.send_multipart([b"", b"READY"])
        for _ in range(60):
            for dealer in dealers:
                dealer.send_multipart([b"", b"PING"])
            if len(json.loads(ask(http_port, "GET", "/v1/workers"))["workers"]) == WORKERS:
                return (resident(pid) - before) / WORKERS
            time.sleep(0.5)
    raise TimeoutError("the workers did not join")


def per_job(pid: int, http_port: int) -> float:
    before = resident(pid)
    with closing(http.client.HTTPConnection("127.0.0.1", http_port, timeout=30)) as connection:
        for _ in range(JOBS):
            connection.request("POST", "/v1/jobs?service=later", BODY, {"content-type": "application/octet-stream"})
            response = connection.getresponse()
            response.read()
            if response.status >= 300:
                raise RuntimeError(f"a job was refused: {response.status}")
    return (resident(pid) - before) / JOBS


def measure(program: str) -> tuple[float, float]:
    """Bytes per idle worker and per waiting job of this program's broker."""
    http_port, port = free_ports(2)
    urls = [f"http://127.0.0.1:{http_port}", f"pingpong+tcp://127.0.0.1:{port}"]
    command = [program, "serve", *urls, "--data", "memory", "--log-level", "error"]
    broker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_ready(http_port)
        ask(http_port, "GET", "/v1/workers")  # what is loaded at the first request is not counted
        ask(http_port, "POST", "/v1/jobs?service=later", BODY)
        return per_worker(broker.pid, http_port, port), per_job(broker.pid, http_port)
    finally:
        broker.terminate()
        broker.wait(30)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the memory of two builds of Dragoman.")
    parser.add_argument("other", help="the program `dragoman` of the other build")
    parser.add_argument("--this", default=".venv/bin/dragoman", help="the program of this build (.venv/bin/dragoman)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each build (3)")
    arguments = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {arguments.other: [], arguments.this: []}
    for _ in range(arguments.runs):
        for program, values in found.items():
            values.append(measure(program))
            print(f"  {program}: {values[-1][0]:,.0f} bytes a worker, {values[-1][1]:,.0f} a job", flush=True)
    for index, name in enumerate(("idle worker", "waiting job")):
        other, this = (statistics.median(each[index] for each in values) for values in found.values())
        print(f"bytes per {name}: other {other:,.0f}, this {this:,.0f}, ratio {this / other:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
