"""Benchmark of the Python clients: no-op jobs a second, their CPU per job, and the duration of one call.

    python -m bench.client

The broker and an echoing worker on pyzmq are processes of their own; all three share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import zmq

from bench.brokers import NATIVE_COMMAND, Kind, running
from dragoman import AsyncClient, Client

NATIVE = Kind("Dragoman", "native", NATIVE_COMMAND)
PAYLOAD = bytes(100)
RECORD = 38  # bytes of the JOB message for each of its jobs
CALLS = 2000


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.client")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--echo", metavar="ENDPOINT", help="run the worker instead")
    options = parser.parse_args()
    if options.echo:
        echo(options.echo)
    with running(NATIVE) as broker, _worker(broker.frontend):
        with Client(broker.frontend) as client:
            client.call("echo", wait_for_worker=True, timeout=10)
            with _measured("Client.map", options.jobs):
                for _ in client.map("echo", (PAYLOAD for _ in range(options.jobs)), window=options.window):
                    pass
            with _measured("Client.submit", options.jobs):
                _submit(client, options.jobs, options.window)
            _tell_latencies("Client.call", [_call(client) for _ in range(CALLS)])
        asyncio.run(_in_a_loop(broker.frontend, options.jobs, options.window))


def echo(endpoint: str) -> None:
    """Run a worker that echoes payloads, many at once."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.set_hwm(0)
    socket.connect(endpoint)
    socket.send_multipart([b"\x01\x01\x02", json.dumps({"services": ["echo"], "capacity": 1024}).encode()])
    while True:
        if not socket.poll(1000):
            socket.send(b"\x04")
            continue
        message = socket.recv_multipart()
        if message[0][0] == 0x30:
            tokens = [message[1][at : at + 16] for at in range(0, len(message[1]), RECORD)]
            socket.send_multipart([b"\x20" + b"".join(tokens), *message[2:]])


@contextmanager
def _worker(endpoint: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-m", "bench.client", "--echo", endpoint])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def _measured(name: str, jobs: int) -> Iterator[None]:
    began, cpu = time.perf_counter(), time.process_time()
    yield
    seconds, spent = time.perf_counter() - began, time.process_time() - cpu
    print(f"{name:20} {jobs / seconds:9,.0f} jobs/s   {spent / jobs * 1e6:5.1f} µs of CPU a job in this process")


def _submit(client: Client, jobs: int, window: int) -> None:
    under_way = deque(client.submit("echo", PAYLOAD, timeout=60) for _ in range(window))
    for _ in range(jobs - window):
        under_way.popleft().result()
        under_way.append(client.submit("echo", PAYLOAD, timeout=60))
    for job in under_way:
        job.result()


def _call(client: Client) -> float:
    began = time.perf_counter()
    client.call("echo", PAYLOAD, timeout=60)
    return time.perf_counter() - began


async def _in_a_loop(url: str, jobs: int, window: int) -> None:
    async with AsyncClient(url) as client:
        with _measured("AsyncClient.map", jobs):
            async for _ in client.map("echo", (PAYLOAD for _ in range(jobs)), window=window):
                pass
        latencies = []
        for _ in range(CALLS):
            began = time.perf_counter()
            await client.call("echo", PAYLOAD, timeout=60)
            latencies.append(time.perf_counter() - began)
        _tell_latencies("AsyncClient.call", latencies)


def _tell_latencies(name: str, latencies: list[float]) -> None:
    latencies.sort()
    median, late = (latencies[int(len(latencies) * part)] * 1e6 for part in (0.5, 0.99))
    print(f"{name:20} p50 {median:,.0f} µs   p99 {late:,.0f} µs")


if __name__ == "__main__":
    main()
