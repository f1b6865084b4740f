"""A worker that throws random darts, and reports its progress.

    dragoman worker pi:worker

Run it in this folder, in any number of processes. estimate.py submits the jobs.
"""

import random

from dragoman import Context, Worker

worker = Worker("tcp://127.0.0.1:7400")


@worker.service("darts", codec="json")
def darts(task: dict[str, int], ctx: Context) -> int:
    """Return the number of darts that hit the circle. A parameter annotated Context gets the job's context."""
    chance = random.Random(task["seed"])
    hits = 0
    for number in range(task["darts"]):
        hits += chance.random() ** 2 + chance.random() ** 2 < 1
        if number % 1000 == 999:
            ctx.progress(number + 1, task["darts"])  # for the caller's job.progress and on_progress
            if ctx.cancelled:  # the result is no longer wanted
                break
    return hits
