"""Tasks that tell what their worker sees of the system."""

from __future__ import annotations

import multiprocessing
import os
import sys
from time import sleep

from dragoman import Context, task
from dragoman.sdk import outgoing, parent_death, printable
from dragoman.streams import sockets


def seen() -> list[str]:
    """Return what modules of Dragoman see."""
    has_fork = "a fork" if hasattr(parent_death.os, "fork") else "no fork"
    has_unix = "no Unix sockets" if sockets.AF_UNIX is None else "Unix sockets"
    return [outgoing.os.name, printable.sys.platform, has_fork, has_unix]


@task
def system() -> tuple[list[str], bool]:
    return seen(), multiprocessing.parent_process() is not None


@task
async def system_of_loop() -> tuple[list[str], bool]:
    return seen(), multiprocessing.parent_process() is not None


@task
def repeat(text: str, count: int) -> str:
    return text * count


@task
def end() -> None:
    os._exit(7)


@task
def unaware() -> None:
    """Run without a look at its context. The sleep is the duration of the job."""
    print("it runs in", os.getpid(), file=sys.stderr, flush=True)
    sleep(60)


@task
def until_cancelled(ctx: Context) -> None:
    """Run until it is cancelled. The sleep is the duration of a step."""
    print("it runs in", os.getpid(), file=sys.stderr, flush=True)
    while not ctx.cancelled:
        sleep(0.01)
