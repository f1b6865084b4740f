"""Running workers: whose life it is in which dialect, and what signals do to it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pkgutil import resolve_name
from typing import Protocol

from dragoman.sdk.address import address_error, parse
from dragoman.sdk.dialling_worker import first
from dragoman.sdk.event_loop import new_loop
from dragoman.sdk.execution import ExecutionOptions
from dragoman.sdk.handlers import Handler
from dragoman.sdk.job_runner import JobRunner, Pool
from dragoman.sdk.loading import ObjectReference
from dragoman.sdk.reload import FileWatcher
from dragoman.sdk.targets import SPOKEN, Target, worker_target


class WorkerDefinition(Protocol):
    """A worker as its program describes it: `worker.py:Worker`."""

    url: str
    execution: ExecutionOptions
    services: dict[str, Handler]
    _stop: Callable[[], None] | None

    def references(
        self, services: Sequence[str], home: ObjectReference | None = None
    ) -> Mapping[str, ObjectReference]: ...


class WorkerLoop(Protocol):
    """One worker's life, from its first connection to its last."""

    async def live(self) -> int:
        """Serve until told to stop; then finish what is in hand, and leave. Returns the exit code."""

    def stop(self) -> None:
        """Once: finish what is in hand. Twice: do not wait for it."""


def run(
    worker: WorkerDefinition, home: ObjectReference | None = None, log_level: str = "", watch: FileWatcher | None = None
) -> int:
    """Run a worker until it is told to stop. `home` is where a child process finds it, if that is known; `log_level` is
    for children that nobody else tells how to log. Raises AddressError and CannotLoad."""
    target = target_of(worker)
    services = {name: worker.services[name] for name in target.services}
    execution = worker.execution
    references: Mapping[str, ObjectReference] = {}
    if execution.threads is None:
        references = worker.references([name for name, each in services.items() if not each.is_async], home)
    mute = "" if target.dialect.reports else target.dialect.name
    pool = execution.pool(services, references, mute, log_level)
    shift = WorkerRunner(target, pool, execution.jobs_at_once(services.values()), execution.cancel_grace, watch)
    worker._stop = shift.stop
    try:
        return shift.run()
    finally:
        worker._stop = None


def target_of(worker: WorkerDefinition) -> Target:
    """Where it works, and for which of its services: all of them, or one where a worker has but one; the URL may choose
    it. Raises AddressError."""
    names = tuple(worker.services)
    if not names:
        raise ValueError("this worker offers nothing: decorate a function with @worker.service(NAME)")
    address = parse(worker.url, SPOKEN)
    dialect = SPOKEN[address.dialect]
    if dialect.shares_connections:
        return worker_target(worker.url, names)
    chosen = address.options.get("service")
    if chosen is None and len(names) == 1:
        chosen = names[0]
    if chosen in names:
        # Where the wire has no names, ours are nobody's business but ours.
        named = (chosen,) if dialect.has_service_names else ()
        return replace(worker_target(worker.url, named), services=(chosen,))
    told = f"a worker in {address.dialect} offers one service"
    if chosen is not None:
        raise address_error(worker.url, f"{told}; the URL chooses {chosen!r}, and this one has {', '.join(names)}")
    raise address_error(worker.url, f"{told}, and this one has {', '.join(names)}: choose by service= in the URL")


class WorkerRunner:
    """All the lives of one worker process: one, or as many as work at once where they cannot share a connection."""

    def __init__(
        self,
        target: Target,
        pool: Mapping[str, Pool],
        concurrency: int,
        grace: float,
        watch: FileWatcher | None = None,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] = new_loop,
    ) -> None:
        self._target = target
        self._pool = pool
        self._concurrency = concurrency
        self._grace = grace
        self._watch = watch
        self._loop_factory = loop_factory
        self._lives: Sequence[WorkerLoop] = ()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self) -> int:
        """Blocks until told to stop, by a signal or the broker. Raises AddressError and CannotLoad."""
        with asyncio.Runner(loop_factory=self._loop_factory) as runner:
            return runner.run(self._main())

    def stop(self) -> None:
        """For other threads."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._stop)

    async def _main(self) -> int:
        loop = self._loop = asyncio.get_running_loop()
        self._is_told = asyncio.Event()
        if threading.current_thread() is threading.main_thread():
            for each in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(each, self._stop)
        job_runner = JobRunner(self._pool, self._grace)
        watching = loop.create_task(self._watch.wait(self._stop)) if self._watch is not None else None
        try:
            starting = loop.create_task(job_runner.start())
            await first(starting, self._is_told.wait())
            if self._is_told.is_set():  # there is nothing in hand, whatever a handler's module is still at
                return 0
            starting.result()
            self._lives = self._come_to_life(job_runner)
            return max(await asyncio.gather(*(each.live() for each in self._lives)))
        finally:
            if watching is not None:
                watching.cancel()
            await job_runner.close()

    def _come_to_life(self, job_runner: JobRunner) -> list[WorkerLoop]:
        target = self._target
        life: Callable[..., WorkerLoop] = resolve_name(target.dialect.worker)
        if target.dialect.shares_connections:
            return [life(target, job_runner, self._concurrency)]
        return [life(target, job_runner) for _ in range(self._concurrency)]

    def _stop(self) -> None:
        self._is_told.set()
        for each in self._lives:
            each.stop()
