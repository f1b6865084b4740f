"""A task in two versions; `DEPLOY_VERSION` selects that of a worker. Each run leaves a line in `DEPLOY_RUNS`."""

import os
import threading

from dragoman import Context, task


def note(ctx: Context) -> None:
    threading.Event().wait(0.005)  # a worker is busy for a while, so that jobs wait
    line = f"{ctx.job_id} {os.environ['DEPLOY_VERSION']}\n".encode()
    runs = os.open(os.environ["DEPLOY_RUNS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(runs, line)
    os.close(runs)


@task(name="deploy.total")
def first(ctx: Context, prices: list[float]) -> float:
    note(ctx)
    return sum(prices)


@task(name="deploy.total")
def second(ctx: Context, prices: list[float], discount: float = 0.0) -> float:
    note(ctx)
    return sum(prices) * (1.0 - discount)
