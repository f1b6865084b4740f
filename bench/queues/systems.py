"""The compared systems and their configuration, as their own documentation recommends it for speed."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench.queues.home import PYTHON

PROCESSES = 2
WINDOW = 256

_OURS = "bench.queues.our_workers"
_TASKS = "bench.queues.our_tasks"
_FOREIGN = "bench.queues.foreign"
_REDIS = ("redis[hiredis]",)


@dataclass(frozen=True, slots=True)
class System:
    """A system. In a command, `{place}` is the broker's address, `{port}` its port, `{dragoman}` the selected program.
    The client's `python` has its packages; None means the Python beside that program."""

    name: str
    settings: str
    program: str
    python: Path | None
    place: str = "tcp://127.0.0.1:{port}"
    broker: tuple[str, ...] = ()  # of none if it is Redis, too
    workers: tuple[tuple[str, ...], ...] = ()
    requirements: tuple[str, ...] = ()
    uses_redis: bool = False

    @property
    def short_name(self) -> str:
        """Return the name for files."""
        return self.name.partition(" ")[0].lower()


def _ours(
    name: str, settings: str, function: str, *options: str, commands: int, prefetch: int = 0, is_typed: bool = False
) -> System:
    url = "{place}" + (f"?prefetch={prefetch}" if prefetch else "")
    handler = f"{_TASKS if is_typed else _OURS}:{function}"
    worker = ("{dragoman}", "worker", handler, "--service", "echo", "--connect", url, *options)
    return System(
        name=name,
        settings=settings,
        program="bench.queues.typed" if is_typed else "bench.queues.ours",
        python=None,
        broker=("{dragoman}", "serve", "{place}", "--data", "memory"),
        workers=(worker,) * commands,
    )


def _on_redis(name: str, settings: str, worker: tuple[str, ...], *requirements: str) -> System:
    return System(
        name=name,
        settings=settings,
        program=f"{_FOREIGN}.on_{name.lower()}",
        python=PYTHON,
        place="redis://127.0.0.1:{port}/0",
        workers=((str(PYTHON.with_name(worker[0])), *worker[1:]),),
        requirements=(*requirements, *_REDIS),
        uses_redis=True,
    )


def _pair(where: str, settings: str, function: str, *options: str, commands: int, prefetch: int = 0) -> Pair:
    """Return two systems that differ in their jobs only: bytes, and a typed task."""
    return Pair(
        _ours(f"Dragoman {where}", f"{settings}; Client.map", function, *options, commands=commands, prefetch=prefetch),
        _ours(
            f"Dragoman {where}, typed",
            f"{settings}; Task.map",
            function,
            *options,
            commands=commands,
            prefetch=prefetch,
            is_typed=True,
        ),
    )


class Pair(NamedTuple):
    plain: System
    typed: System


PAIRS = (
    _pair(
        "async",
        "2 workers, async handlers, each up to 128 jobs at once",
        "on_a_loop",
        *("--concurrency", "128"),
        commands=PROCESSES,
    ),
    _pair(
        "threads", "2 workers of 4 threads, prefetch 64", "elsewhere", "--threads", "4", commands=PROCESSES, prefetch=64
    ),
    _pair(
        "processes",
        "1 worker with 2 warm processes, prefetch 64",
        "elsewhere",
        *("--concurrency", str(PROCESSES)),
        commands=1,
        prefetch=64,
    ),
)
HEADLINE = PAIRS[0].plain
OURS = (*PAIRS[0], *(each.plain for each in PAIRS[1:]))
ON_REDIS = (
    _on_redis(
        "Celery",
        "prefork 2, prefetch 64, no gossip, mingle, heartbeat, events or remote control; groups",
        (
            *("celery", "-A", f"{_FOREIGN}.on_celery", "worker", "--pool", "prefork", "--concurrency", str(PROCESSES)),
            *("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR"),
        ),
        "celery",
        "packaging",  # imported by kombu's transport for Redis, which does not require it
    ),
    _on_redis(
        "Dramatiq",
        "2 processes of 8 threads, Results; groups",
        ("dramatiq", f"{_FOREIGN}.on_dramatiq", "--processes", str(PROCESSES), "--threads", "8"),
        "dramatiq[redis]",
    ),
    _on_redis(
        "RQ",
        "pool of 2 SimpleWorkers (no fork for each job); enqueue_many",
        (
            *("rq", "worker-pool", "--url", "{place}", "--num-workers", str(PROCESSES), "--quiet"),
            *("--worker-class", "rq.worker.SimpleWorker"),
        ),
        "rq",
    ),
    _on_redis(
        "taskiq",
        "2 processes on uvloop, 200 tasks at once, a list in Redis; gather, results asked for every 1 ms (many: 50 ms)",
        (
            *("taskiq", "worker", f"{_FOREIGN}.on_taskiq:broker", "--workers", str(PROCESSES)),
            *("--max-async-tasks", "200", "--max-prefetch", "100", "--log-level", "ERROR"),
        ),
        "taskiq",
        "taskiq-redis",
        "uvloop",
    ),
)
DASK = System(
    name="Dask",
    settings="scheduler and 2 worker processes of 1 thread; map and gather",
    program=f"{_FOREIGN}.on_dask",
    python=PYTHON,
    broker=(str(PYTHON.with_name("dask")), "scheduler", "--host", "127.0.0.1", "--port", "{port}", "--no-dashboard"),
    workers=(
        (
            *(str(PYTHON.with_name("dask")), "worker", "{place}", "--host", "127.0.0.1", "--no-dashboard"),
            *("--nworkers", str(PROCESSES), "--nthreads", "1"),
        ),
    ),
    requirements=("distributed",),
)
POOL = System(
    name="ProcessPoolExecutor",
    settings="2 processes, no broker; submit",
    program="bench.queues.pool",
    python=Path(sys.executable),
)
SYSTEMS = (*OURS, *ON_REDIS, DASK, POOL)
