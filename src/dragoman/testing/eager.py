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
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from dragoman.dialects.sides import NOTHING_SAID, Outcome
from dragoman.sdk.context import Context
from dragoman.sdk.errors import JobError, NoSuchJob, NoSuchService, error_from
from dragoman.sdk.handlers import HandlerFailed
from dragoman.sdk.parts import parts_required
from dragoman.tasks.clients import using
from dragoman.tasks.task import Task

if TYPE_CHECKING:
    from dragoman.operations.schemas import JobView
    from dragoman.sdk.codecs import Codec, Payload
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

    def call(self, service: str, payload: bytes, *, codec: Codec, **_: object) -> Any:
        return codec.decode(self._run(service, payload))

    def submit(self, service: str, payload: bytes, *, codec: Codec, **_: object) -> Any:
        future = EagerFuture()
        try:
            *parts, rest = self._run_in_parts(service, payload, takes_parts=True)
            future.set_parts([codec.decode(each) for each in parts])
            future.set_result(codec.decode(rest))
        except JobError as error:
            future.set_exception(error)
        return future

    def submit_whole(self, service: str, payload: bytes, *, codec: Codec, **_: object) -> Any:
        future = EagerFuture()
        try:
            future.set_result(codec.decode(self._run(service, payload)))
        except JobError as error:
            future.set_exception(error)
        return future

    def map(self, service: str, payloads: Iterable[bytes], *, codec: Codec, **_: object) -> Iterator[Any]:
        return (codec.decode(self._run(service, payload)) for payload in payloads)

    def enqueue(self, service: str, payload: bytes, **_: object) -> str:
        id, created = uuid.uuid4().hex, datetime.now(UTC)
        try:
            self._jobs[id] = service, created, self._run(service, payload)
        except NoSuchService:
            raise
        except JobError as error:
            self._jobs[id] = service, created, error
        return id

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
        """Return the result with its parts in front. Raises JobFailed and NoSuchService."""
        return b"".join(self._run_in_parts(service, payload))

    def _run_in_parts(self, service: str, payload: bytes, *, takes_parts: bool = False) -> list[bytes]:
        """Return the parts of the result, and the rest. Raises JobFailed and NoSuchService."""
        handler = self._handlers.get(service)
        if handler is None:
            known = ", ".join(self._handlers) or "none"
            raise NoSuchService(f"refused: {service!r} is not among the tasks of this eager block: {known}")
        if handler.parts == "require" and not takes_parts:
            failure = parts_required(service)
            raise error_from(Outcome.FAILED, failure.sentence, failure)
        parts: list[bytes] = []
        context = Context(service, NOTHING_SAID, handler.codec, partial(_keep, parts), lambda: False)
        try:
            is_async = handler.is_async
            rest = _awaited(handler.perform_async(payload, context)) if is_async else handler.perform(payload, context)
            return [*parts, bytes(rest)]
        except HandlerFailed as problem:
            failure = problem.failure
            raise error_from(Outcome.FAILED, failure.sentence, failure) from problem.cause


class EagerFuture(concurrent.futures.Future[Any]):
    """A job that has ended, with the parts of its result."""

    attempt = 1

    def set_parts(self, parts: list[Any]) -> None:
        self._parts = parts

    def parts(self) -> Iterator[Any]:
        """Iterate over the parts of the result."""
        self.result()
        return iter(self._parts)


def _keep(parts: list[bytes], payload: Payload, is_part: bool) -> None:
    if is_part:
        parts.append(bytes(payload))


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
