"""A worker that throws darts, and says how many it has thrown.

    dragoman worker pi:worker

In this folder, as often as you like. The darts are ordered by estimate.py.
"""

import random

from dragoman import Context, Worker

worker = Worker("tcp://127.0.0.1:7400")


@worker.service("darts", codec="json")
def darts(task: dict[str, int], ctx: Context) -> int:
    """How many of so many darts hit the circle. A handler with a second parameter gets the job's context in it."""
    chance = random.Random(task["seed"])
    hits = 0
    for number in range(task["darts"]):
        hits += chance.random() ** 2 + chance.random() ** 2 < 1
        if number % 1000 == 999:
            ctx.progress(number + 1, task["darts"])  # the caller's job.progress, and its on_progress
            if ctx.cancelled:  # nobody waits any more
                break
    return hits
