"""Eager tasks, for unit tests: calls and background jobs of tasks run at once, in this process, without a broker."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

from dragoman.dialects.sides import JobInfo, Outcome
from dragoman.sdk.context import Context
from dragoman.sdk.errors import JobError, NoSuchJob, NoSuchService, error_from
from dragoman.sdk.handlers import HandlerFailed
from dragoman.tasks.clients import using
from dragoman.tasks.task import Task

if TYPE_CHECKING:
    from dragoman.operations.schemas import JobView
    from dragoman.sdk.codecs import Codec
    from dragoman.tasks.clients import AnyClient


ATTEMPTS: Final = 3  # of a background job, by default


@contextmanager
def eager(*tasks: Task[Any, Any]) -> Iterator[EagerClient]:
    """Run these tasks here, within this block and this thread. Arguments and results are encoded and decoded as on the
    way to a worker, and a failure is raised as JobFailed. Background jobs have run when `enqueue` returns, with all
    their attempts and without the delays between them.

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
        self._jobs: dict[str, _EndedJob] = {}

    def call(self, service: str, payload: bytes, *, codec: Codec, attempts: int | None = None, **_: object) -> Any:
        return codec.decode(self._run(service, payload, attempts or 1).result())

    def submit(self, service: str, payload: bytes, *, codec: Codec, attempts: int | None = None, **_: object) -> Any:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            future.set_result(self.call(service, payload, codec=codec, attempts=attempts))
        except JobError as error:
            future.set_exception(error)
        return future

    def map(
        self, service: str, payloads: Iterable[bytes], *, codec: Codec, attempts: int | None = None, **_: object
    ) -> Iterator[Any]:
        return (self.call(service, payload, codec=codec, attempts=attempts) for payload in payloads)

    def enqueue(self, service: str, payload: bytes, *, attempts: int | None = None, **_: object) -> str:
        job = self._run(service, payload, attempts or ATTEMPTS)
        self._jobs[job.id] = job
        return job.id

    def result(self, id: str, **_: object) -> bytes:
        return self._job(id).result()

    def job(self, id: str) -> JobView:
        return self._job(id).view()

    def why(self, id: str) -> str:
        job = self._job(id)
        return f"It ended {job.failures[-1]}." if job.answer is None else "It is done."

    def cancel(self, id: str) -> bool:
        self._job(id)
        return False  # it has ended

    def _job(self, id: str) -> _EndedJob:
        try:
            return self._jobs[id]
        except KeyError:
            raise NoSuchJob(f"there is no job {id}") from None

    def _run(self, service: str, payload: bytes, attempts: int) -> _EndedJob:
        """Run a job to its end. Raises NoSuchService."""
        handler = self._handlers.get(service)
        if handler is None:
            known = ", ".join(self._handlers) or "none"
            raise NoSuchService(f"refused: {service!r} is not among the tasks of this eager block: {known}")
        job = _EndedJob(uuid.uuid4().hex, service, datetime.now(UTC), attempts)
        while len(job.failures) < attempts:
            info = JobInfo(service, job.id, len(job.failures) + 1)
            context = Context(service, info, handler.codec, lambda *_: None, lambda: False)
            try:
                if handler.is_async:
                    job.answer = bytes(_awaited(handler.perform_async(payload, context)))
                else:
                    job.answer = bytes(handler.perform(payload, context))
                break
            except HandlerFailed as problem:
                failure = problem.failure
                error = error_from(Outcome.FAILED, failure.sentence, failure)
                error.__cause__ = problem.cause
                job.failures.append(error)
                if failure.is_permanent:
                    break
        return job


@dataclass
class _EndedJob:
    """A job that was run: its failed attempts, and its answer unless all of them failed."""

    id: str
    service: str
    created: datetime
    max_attempts: int
    failures: list[JobError] = field(default_factory=list)
    answer: bytes | None = None

    def result(self) -> bytes:
        """Raises JobFailed."""
        if self.answer is None:
            raise self.failures[-1]
        return self.answer

    def view(self) -> JobView:
        from dragoman.operations.schemas import AttemptView, JobView

        is_failed = self.answer is None
        attempts = [
            AttemptView(number=number, worker="eager", outcome="failed", reason=str(each))
            for number, each in enumerate(self.failures, 1)
        ]
        if not is_failed:
            attempts.append(AttemptView(number=len(attempts) + 1, worker="eager", outcome="done"))
        return JobView(
            id=self.id,
            service=self.service,
            state="ended",
            outcome="failed" if is_failed else "done",
            reason=str(self.failures[-1]) if is_failed else "",
            background=True,
            quarantined=is_failed,
            priority=5,
            attempts=attempts,
            max_attempts=self.max_attempts,
            created=self.created,
        )


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

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,))  # tasks within it are eager, too
    thread.start()
    thread.join()
    return found.result()
