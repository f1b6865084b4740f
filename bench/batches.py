"""Background jobs enqueued one by one and in batches, by one thread: `python -m bench.batches [JOBS]`.

A broker with a store is started on Unix sockets; its files are in `bench/build`, so on the disk of the clone. No worker
runs. For each listener the three ways take turns, and the medians of three rounds are printed.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dragoman import Client

BUILD = Path(__file__).parent / "build"
ROUNDS = 3
PAYLOAD = bytes(512)
START = 60.0  # seconds until the broker must listen


def main(jobs: int) -> None:
    BUILD.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="batches-", dir=BUILD))
    native, http = f"ipc://{folder}/n", f"http+unix://{folder}/h"
    words = [sys.executable, "-m", "dragoman", "serve", native, http, "--data", str(folder / "data")]
    broker = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        print(f"| {jobs} jobs of 512 bytes, one thread | enqueue, s | enqueue_many, s | enqueue_group, s | ratio |")
        print("|---|---|---|---|---|")
        for name, url in (("native", native), ("HTTP", http)):
            with Client(url, connect_timeout=START) as client:
                client.health()
                print(_row(name, measure(client, jobs)))
    finally:
        broker.terminate()
        broker.wait(START)
        shutil.rmtree(folder)


def measure(client: Client, jobs: int) -> list[float]:
    """Return the median seconds of each way."""
    payloads = [PAYLOAD] * jobs
    ways: list[Callable[[], object]] = [
        lambda: [client.enqueue("nobody", payload) for payload in payloads],
        lambda: client.enqueue_many("nobody", payloads),
        lambda: client.enqueue_group("nobody", payloads),
    ]
    taken: list[list[float]] = [[] for _ in ways]
    for _ in range(ROUNDS):
        for way, seconds in zip(ways, taken, strict=True):
            start = time.perf_counter()
            way()
            seconds.append(time.perf_counter() - start)
            client.purge("nobody")
    return [statistics.median(each) for each in taken]


def _row(name: str, medians: list[float]) -> str:
    one, many, group = medians
    return f"| {name} | {one:.2f} | {many:.3f} | {group:.3f} | {one / many:.0f} |"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000)
