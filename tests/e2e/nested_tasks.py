"""Tasks whose handlers submit jobs, as a module that `dragoman worker` runs."""

from __future__ import annotations

import sys
import threading

from dragoman import Context, enqueue_many, task
from dragoman.tasks.clients import default_client


@task
def parent_of(ctx: Context) -> str | None:
    """Return the parent of this job, as the broker knows it."""
    return default_client().job(ctx.job_id).parent


@task
def by_call(ctx: Context) -> list[str | None]:
    return [ctx.job_id, parent_of.call()]


@task
def by_enqueue(ctx: Context) -> list[str | None]:
    return [ctx.job_id, parent_of.enqueue().result(timeout=50)]


@task
def by_batch(ctx: Context) -> list[str | None]:
    return [ctx.job_id, enqueue_many([parent_of.prepare()])[0].result(timeout=50)]


@task
def by_group(ctx: Context) -> list[str | None]:
    return [ctx.job_id, *parent_of.prepare().then(echo).enqueue().result(timeout=50)]


@task
def echo(parent: str | None) -> list[str | None]:
    return [parent]


@task
def by_thread(ctx: Context) -> list[str | None]:
    """Call from a thread that the handler starts: it does not inherit context variables."""
    found: list[str | None] = [ctx.job_id]
    thread = threading.Thread(target=lambda: found.append(parent_of.call()))
    thread.start()
    thread.join()
    return found


@task
async def by_await(ctx: Context) -> list[str | None]:
    return [ctx.job_id, await parent_of.acall()]


@task
def family(service: str) -> list[str]:
    """Enqueue two jobs that no worker runs."""
    client = default_client()
    return [client.enqueue(service, name) for name in ("first", "second")]


if __name__ == "__main__":  # as a program that a worker has started for a job
    sys.stdout.write(parent_of.call() or "none")
