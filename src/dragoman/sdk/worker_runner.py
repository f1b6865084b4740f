"""Runs a worker: selects the worker loop of its dialect and handles signals."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any, Final, Protocol

from dragoman.sdk.address import address_error
from dragoman.sdk.address_list import first_url, parse_all
from dragoman.sdk.credentials import Credentials
from dragoman.sdk.dialling_worker import first
from dragoman.sdk.event_loop import new_loop, stopped_by_signals
from dragoman.sdk.execution import ExecutionOptions
from dragoman.sdk.handlers import Handler
from dragoman.sdk.job_runner import JobRunner, Pool
from dragoman.sdk.loading import ObjectReference
from dragoman.sdk.reload import FileWatcher
from dragoman.sdk.targets import SPOKEN, Target, worker_target

log = logging.getLogger("dragoman.worker")

MOST_OF_ONE: Final = 8_000  # bytes of JSON about the parameters of one service
MOST_DECLARED: Final = 24_000  # of all services: they share a message with other facts


class WorkerDefinition(Protocol):
    """A worker as its program defines it; implemented by `worker.py:Worker`."""

    url: str | tuple[str, ...]
    credentials: Credentials
    execution: ExecutionOptions
    services: dict[str, Handler]
    _stop: Callable[[], None] | None

    def references(
        self, services: Sequence[str], home: ObjectReference | None = None
    ) -> Mapping[str, ObjectReference]: ...


class WorkerLoop(Protocol):
    """Connects one worker to its broker and passes its jobs to the job runner, until it stops."""

    async def serve(self) -> int:
        """Serve until `stop` is called, finish the running jobs and disconnect. Returns the exit code."""

    def stop(self) -> None:
        """Finish the running jobs, then stop; the second call stops at once."""


def run(
    worker: WorkerDefinition, home: ObjectReference | None = None, log_level: str = "", watch: FileWatcher | None = None
) -> int:
    """Run a worker until it is stopped.

    `home`: reference by which a child process imports the worker, if known. `log_level`: log level of child processes;
    empty if the handlers' own code configures logging. Raises AddressError and HandlerLoadError.
    """
    target = target_of(worker)
    services = {name: worker.services[name] for name in target.services}
    requiring = tuple(name for name, each in services.items() if each.parts == "require")
    if requiring and not target.dialect.knows_parts:
        raise address_error(
            first_url(worker.url),
            f"{requiring[0]!r} requires callers that take parts (parts='require'), and workers in "
            f"{target.dialect.name} do not know which do; use a native URL, tcp://127.0.0.1:7400, or parts='join'",
        )
    limits = {name: each.limits for name, each in services.items() if not each.limits.is_empty}
    if limits and not target.dialect.carries_limits:
        raise address_error(
            first_url(worker.url),
            f"{next(iter(limits))!r} declares limits, and workers in {target.dialect.name} cannot; use a native URL, "
            "tcp://127.0.0.1:7400, or HTTP, or set them by: dragoman limit",
        )
    parameters = declared_parameters(services) if target.dialect.carries_limits else {}
    target = replace(target, requires_parts=requiring, limits=limits, parameters=parameters)
    execution = worker.execution
    references: Mapping[str, ObjectReference] = {}
    if execution.threads is None:
        references = worker.references([name for name, each in services.items() if not each.is_async], home)
    without_parts = "" if target.dialect.reports else target.dialect.name
    pool = execution.pool(services, references, without_parts, log_level)
    runner = WorkerRunner(target, pool, execution.jobs_at_once(services.values()), execution.cancel_grace, watch)
    worker._stop = runner.stop
    try:
        return runner.run()
    finally:
        worker._stop = None


def declared_parameters(services: Mapping[str, Handler]) -> dict[str, dict[str, Any]]:
    """Return the parameters of those services that are tasks, as JSON Schema objects. Where there is no room for their
    types, they have names only."""
    found: dict[str, dict[str, Any]] = {}
    room = MOST_DECLARED
    for name, each in services.items():
        if each.declares is None:
            continue
        schema = each.declares()
        for attempt in (schema, {"type": "object", "properties": dict.fromkeys(schema["properties"], True)}):
            size = len(json.dumps({name: attempt}))
            if size <= min(room, MOST_OF_ONE):
                found[name] = attempt
                room -= size
                break
    return found


def target_of(worker: WorkerDefinition) -> Target:
    """Return the broker and the services of a worker: all services, or one where the dialect allows only one per
    worker. Then the URL may choose it. Raises AddressError."""
    names = tuple(worker.services)
    if not names:
        raise ValueError("this worker offers nothing: decorate a function with @worker.service(NAME)")
    address = parse_all(worker.url, SPOKEN)[0]
    dialect = SPOKEN[address.dialect]
    if dialect.shares_connections:
        return worker_target(worker.url, names, worker.credentials)
    chosen = address.options.get("service")
    if chosen is None and len(names) == 1:
        chosen = names[0]
    if chosen in names:
        # A dialect without service names on the wire has no rules for names.
        named = (chosen,) if dialect.has_service_names else ()
        return replace(worker_target(worker.url, named, worker.credentials), services=(chosen,))
    problem = f"a worker in {address.dialect} offers one service"
    if chosen is not None:
        raise address_error(
            first_url(worker.url), f"{problem}; the URL chooses {chosen!r}, but this one has {', '.join(names)}"
        )
    raise address_error(
        first_url(worker.url), f"{problem}, but this one has {', '.join(names)}; add service=NAME to the URL"
    )


class WorkerRunner:
    """Runs the worker loops of one process: one loop, or one per concurrent job where a dialect carries one job at a
    time on a connection."""

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
        self._loops: Sequence[WorkerLoop] = ()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self) -> int:
        """Block until a signal or the broker stops the worker. Raises AddressError and HandlerLoadError."""
        with asyncio.Runner(loop_factory=self._loop_factory) as runner:
            return runner.run(self._main())

    def stop(self) -> None:
        """Stop the worker; may be called from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._stop)

    async def _main(self) -> int:
        loop = self._loop = asyncio.get_running_loop()
        self._stop_requested = asyncio.Event()
        is_main = threading.current_thread() is threading.main_thread()
        with stopped_by_signals(loop, self._stop) if is_main else nullcontext():
            return await self._serve(loop)

    async def _serve(self, loop: asyncio.AbstractEventLoop) -> int:
        job_runner = JobRunner(self._pool, self._grace)
        watching = loop.create_task(self._watch.wait(self._stop)) if self._watch is not None else None
        try:
            starting = loop.create_task(job_runner.start())
            await first(starting, self._stop_requested.wait())
            if self._stop_requested.is_set():  # no job runs yet, even if a handler's module is still being imported
                return 0
            starting.result()
            log.info("services offered: %s; jobs at once: %d", ", ".join(self._target.services), self._concurrency)
            self._loops = self._make_loops(job_runner)
            return max(await asyncio.gather(*(each.serve() for each in self._loops)))
        finally:
            if watching is not None:
                watching.cancel()
            await job_runner.close()

    def _make_loops(self, job_runner: JobRunner) -> list[WorkerLoop]:
        target = self._target
        make_loop: Callable[..., WorkerLoop] = resolve_name(target.dialect.worker)
        if target.dialect.shares_connections:
            return [make_loop(target, job_runner, self._concurrency)]
        return [make_loop(target, job_runner) for _ in range(self._concurrency)]

    def _stop(self) -> None:
        self._stop_requested.set()
        for each in self._loops:
            each.stop()
