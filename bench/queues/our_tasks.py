"""Typed tasks of Dragoman's workers: `dragoman worker bench.queues.our_tasks:on_a_loop` or `:elsewhere`.

Both have the same signature and are the same service, so one client calls either.
"""

from __future__ import annotations

from bench.queues.echo import echo
from dragoman import task


@task(name="echo")
async def on_a_loop(payload: str) -> str:
    """Return the payload, or the process id, from a coroutine."""
    return echo(payload)


@task(name="echo")
def elsewhere(payload: str) -> str:
    """Return the same from a thread or a child process."""
    return echo(payload)
