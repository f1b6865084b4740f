"""An estimate of pi from random darts, computed by many workers at once, with a progress bar.

    python estimate.py

Start one or more workers of pi.py in other terminals first. The bar is written to standard error, and only if that is a
terminal, so that the result can be redirected.
"""

import sys
from collections.abc import Sequence
from typing import Any

from dragoman import Client, JobFuture

JOBS, DARTS = 20, 50_000


class Bar:
    """A progress bar of jobs. Each draw is one write: reports arrive in the client's thread, results in this one."""

    WIDTH = 40

    def __init__(self, jobs: Sequence[JobFuture[Any]]) -> None:
        self.jobs = jobs
        self.is_seen = sys.stderr.isatty()

    def draw(self, _: object = None) -> None:
        if self.is_seen:
            done = sum(map(share, self.jobs)) / len(self.jobs)
            sys.stderr.write(f"\r[{'#' * int(done * self.WIDTH):{self.WIDTH}}] {done:4.0%}")
            sys.stderr.flush()

    def end(self) -> None:
        if self.is_seen:
            sys.stderr.write("\n")


def share(job: JobFuture[Any]) -> float:
    """Return the finished fraction of a job, from 0 to 1. A report looks like {"done": 3000, "total": 50000}."""
    if job.done():
        return 1.0
    report = job.progress
    return report["done"] / report["total"] if report else 0.0


def main() -> None:
    with Client("tcp://127.0.0.1:7400", codec="json") as client:
        jobs = [client.submit("darts", {"seed": seed, "darts": DARTS}) for seed in range(JOBS)]
        bar = Bar(jobs)
        for job in jobs:
            job.on_progress(bar.draw)
        hits = 0
        for job in client.as_completed(jobs):  # in the order in which they end
            hits += job.result()
            bar.draw()
        bar.end()
    print(4 * hits / (JOBS * DARTS))


if __name__ == "__main__":
    main()
