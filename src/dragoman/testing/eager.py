"""Eager tasks, for unit tests: calls and background jobs of tasks run at once, in this process, without a broker."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from dragoman.dialects.sides import Outcome
from dragoman.sdk.context import local_context
from dragoman.sdk.errors import JobError, JobRefused, NoSuchJob, NoSuchService, error_from
from dragoman.sdk.handlers import HandlerFailed
from dragoman.tasks.clients import using
from dragoman.tasks.task import Task

if TYPE_CHECKING:
    from dragoman.operations.schemas import JobView
    from dragoman.sdk.codecs import Codec
    from dragoman.tasks.clients import AnyClient


@contextmanager
def eager(*tasks: Task[Any, Any]) -> Iterator[EagerClient]:
    """Run these tasks here, within this block and this thread. Arguments and results are encoded and decoded as on the
    way to a worker, and a failure is raised as JobFailed. Background jobs have run when `enqueue` returns.

        with eager(add, send_mail):
            assert add.call(1, 2) == 3
    """
    client = EagerClient(tasks)
    with using(cast("AnyClient", client)):
        yield client


class EagerClient:
    """The methods of a Client that tasks use."""

    def __init__(self, tasks: Iterable[Task[Any, Any]]) -> None:
        self._handlers = {task.name: task.task_handler(task.name) for task in tasks}
        self._jobs: dict[str, tuple[str, datetime, bytes | JobError]] = {}  # service, time, and result
        self._keys: dict[tuple[str, str], tuple[str, bytes, bool]] = {}  # id, payload, and whether it holds its key

    def call(self, service: str, payload: bytes, *, codec: Codec, **_: object) -> Any:
        return codec.decode(self._run(service, payload))

    def submit(self, service: str, payload: bytes, *, codec: Codec, **_: object) -> Any:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            future.set_result(codec.decode(self._run(service, payload)))
        except JobError as error:
            future.set_exception(error)
        return future

    def map(self, service: str, payloads: Iterable[bytes], *, codec: Codec, **_: object) -> Iterator[Any]:
        return (codec.decode(self._run(service, payload)) for payload in payloads)

    def enqueue(
        self, service: str, payload: bytes, *, key: str | None = None, unique: str = "kept", **_: object
    ) -> str:
        if key is not None and (service, key) in self._keys:
            first, before, is_held = self._keys[service, key]
            if is_held and before != payload:
                raise JobRefused(f"refused: key reused: {key!r} came with another payload before")
            if is_held:
                return first
        id, created = uuid.uuid4().hex, datetime.now(UTC)
        try:
            self._jobs[id] = service, created, self._run(service, payload)
        except NoSuchService:
            raise
        except JobError as error:
            self._jobs[id] = service, created, error
        if key is not None:
            self._keys[service, key] = id, payload, unique == "kept"  # it has ended already
        return id

    def find_job(self, service: str, key: str) -> JobView:
        try:
            return self.job(self._keys[service, key][0])
        except KeyError:
            raise NoSuchJob(f"no job of service {service!r} has key {key!r}") from None

    def result(self, id: str, **_: object) -> bytes:
        result = self._job(id)[2]
        if isinstance(result, JobError):
            raise result
        return result

    def job(self, id: str) -> JobView:
        from dragoman.operations.schemas import JobView

        service, created, result = self._job(id)
        reason = str(result) if isinstance(result, JobError) else ""
        return JobView(
            id=id,
            service=service,
            state="ended",
            outcome="failed" if reason else "done",
            reason=reason,
            background=True,
            quarantined=bool(reason),
            priority=5,
            attempts=[],
            max_attempts=1,
            created=created,
        )

    def why(self, id: str) -> str:
        result = self._job(id)[2]
        return f"It {result}." if isinstance(result, JobError) else "It is done."

    def cancel(self, id: str) -> bool:
        self._job(id)
        return False  # it has ended

    def _job(self, id: str) -> tuple[str, datetime, bytes | JobError]:
        try:
            return self._jobs[id]
        except KeyError:
            raise NoSuchJob(f"there is no job {id}") from None

    def _run(self, service: str, payload: bytes) -> bytes:
        """Raises JobFailed and NoSuchService."""
        handler = self._handlers.get(service)
        if handler is None:
            known = ", ".join(self._handlers) or "none"
            raise NoSuchService(f"refused: {service!r} is not among the tasks of this eager block: {known}")
        context = local_context(service)
        try:
            if handler.is_async:
                return bytes(_awaited(handler.perform_async(payload, context)))
            return bytes(handler.perform(payload, context))
        except HandlerFailed as problem:
            failure = problem.failure
            raise error_from(Outcome.FAILED, failure.sentence, failure) from problem.cause


def _awaited(coroutine: Any) -> Any:
    """Run a coroutine to its end, also within a running event loop."""
    assert inspect.iscoroutine(coroutine)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    found: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def run() -> None:
        try:
            found.set_result(asyncio.run(coroutine))
        except BaseException as error:
            found.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found.result()
