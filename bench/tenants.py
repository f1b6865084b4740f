"""Waits of one tenant's jobs while another tenant has 100,000 jobs in the same queue: `python -m bench.tenants`.

A compiled broker with a store, one worker with one slot, and jobs that take 100 ms. The waits of single jobs are read
from their views, so they are the broker's own times from the enqueue to the hand-out.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from bench.brokers import PRODUCT, data_folder
from dragoman import Client, Worker

FLOOD = 100_000
SINGLE_JOBS = 60
JOB_SECONDS = 0.1
MOST_JOBS = 2.0  # a wait stays under the time of this many jobs
START = 60.0  # seconds until the broker must listen


def main() -> int:
    with data_folder() as name:
        url = f"ipc://{name}/n"
        words = [str(PRODUCT), "serve", url, "--data", str(Path(name) / "data")]
        broker = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        worker = None
        try:
            with Client(url, connect_timeout=START) as client:
                client.enqueue_many("nap", [b""] * FLOOD, tenant="flood")
                worker = subprocess.Popen([sys.executable, "-m", "bench.tenants", "--work", url])
                _wait_of_one(client, 0.0)  # the worker has started
                waits = [_wait_of_one(client, JOB_SECONDS * (0.2 + 0.01 * number)) for number in range(SINGLE_JOBS)]
        finally:
            for process in (worker, broker):
                if process is not None:
                    process.terminate()
                    process.wait(START)
    in_jobs = [each / JOB_SECONDS for each in waits]
    is_met = max(in_jobs) < MOST_JOBS
    print(
        f"{FLOOD:,} jobs of one tenant wait; {SINGLE_JOBS} jobs of another, one after the other, {JOB_SECONDS} s each"
    )
    print(f"wait in units of one job's time: median {median(in_jobs):.2f}, longest {max(in_jobs):.2f}")
    print(f"target < {MOST_JOBS:g}: {'yes' if is_met else 'no'}")
    return int(not is_met)


def _wait_of_one(client: Client[bytes], pause: float) -> float:
    """Enqueue a job, and return the seconds that it waited. The pause varies the moment within the running job."""
    time.sleep(pause)
    id = client.enqueue("nap", b"", tenant="other")
    client.result(id, timeout=START)
    waited = client.job(id).waited
    assert waited is not None
    return waited


def _work(url: str) -> None:
    worker = Worker(url, concurrency=1)

    @worker.service("nap")
    async def nap(payload: bytes) -> bytes:
        await asyncio.sleep(JOB_SECONDS)
        return payload

    worker.run()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        _work(sys.argv[2])
    else:
        sys.exit(main())
