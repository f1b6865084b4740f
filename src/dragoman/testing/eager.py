"""Eager tasks, for unit tests: calls and background jobs of tasks run at once, in this process, without a broker."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from dragoman.core.results_payload import Entry, Result, pack_results
from dragoman.dialects.sides import Failure, JobInfo, Outcome
from dragoman.sdk.context import Context
from dragoman.sdk.errors import JobCancelled, JobError, JobRefused, NoSuchGroup, NoSuchJob, NoSuchService, error_from
from dragoman.sdk.handlers import HandlerFailed
from dragoman.sdk.ids import ids_of
from dragoman.sdk.parts import parts_required
from dragoman.tasks.clients import using
from dragoman.tasks.task import Task

if TYPE_CHECKING:
    from dragoman.operations.group_schemas import GroupView
    from dragoman.operations.schemas import JobView
    from dragoman.sdk.codecs import Codec, Payload
    from dragoman.sdk.new_jobs import NewJob
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
        self._groups: dict[str, list[str]] = {}  # ids of their jobs
        self._keys: dict[tuple[str, str], tuple[str, bytes, bool]] = {}  # id, payload, and whether it holds its key

    def call(self, service: str, payload: bytes, *, codec: Codec, attempts: int | None = None, **_: object) -> Any:
        return codec.decode(self._run(service, payload, attempts or 1).result())

    def submit(self, service: str, payload: bytes, *, codec: Codec, attempts: int | None = None, **_: object) -> Any:
        """Run a job and return its future, which has the parts of the result."""
        future = EagerFuture()
        job = self._run(service, payload, attempts or 1, takes_parts=True)
        try:
            rest = codec.decode(job.rest())
            future.set_parts([codec.decode(each) for each in job.parts], len(job.failures) + 1)
            future.set_result(rest)
        except JobError as error:
            future.set_exception(error)
        return future

    def submit_whole(
        self, service: str, payload: bytes, *, codec: Codec, attempts: int | None = None, **_: object
    ) -> Any:
        """Run a job and return its future, whose result has the parts in front."""
        future = EagerFuture()
        try:
            future.set_result(self.call(service, payload, codec=codec, attempts=attempts))
        except JobError as error:
            future.set_exception(error)
        return future

    def map(
        self, service: str, payloads: Iterable[bytes], *, codec: Codec, attempts: int | None = None, **_: object
    ) -> Iterator[Any]:
        return (self.call(service, payload, codec=codec, attempts=attempts) for payload in payloads)

    def enqueue(self, service: str, payload: bytes, **options: Any) -> str:
        return self._enqueue(uuid.uuid4().hex, service, payload, options)

    def enqueue_many(self, service: str, payloads: Iterable[bytes], **options: Any) -> list[str]:
        return [self.enqueue(service, payload, **options) for payload in payloads]

    def enqueue_jobs(self, jobs: Iterable[NewJob]) -> list[str]:
        """Run jobs. Each is behind those that it comes after, as tasks pass them."""
        found = list(jobs)
        for each in found:
            group = each.options.get("group")
            if group is not None:
                self._groups.setdefault(group, []).append(each.id)
        return [self._enqueue(each.id, each.service, each.payload, {**each.options}) for each in found]

    def _enqueue(self, id: str, service: str, payload: bytes, options: dict[str, Any]) -> str:
        key = options.get("key")
        if key is not None and (service, key) in self._keys:
            first, before, is_held = self._keys[service, key]
            if is_held and before != payload:
                raise JobRefused(f"refused: key reused: {key!r} came with another payload before")
            if is_held:
                return first
        attempts = options.get("attempts") or ATTEMPTS
        try:
            job = self._run(service, self._with_input(payload, options), attempts, id)
        except JobCancelled as error:
            job = _EndedJob(id, service, datetime.now(UTC), attempts, cancelled=error)
        self._jobs[id] = job
        if key is not None:
            self._keys[service, key] = id, payload, options.get("unique", "kept") == "kept"  # it has ended already
        return id

    def _with_input(self, payload: bytes, options: dict[str, Any]) -> bytes:
        """Return the payload that a worker would get. Raises JobCancelled if a job before it has failed."""
        entries: list[Entry] = []
        for name in ids_of(options.get("after", ())):
            members = self._groups.get(name)
            before = [self._job(each) for each in members or [name]]
            failed = next((each.error for each in before if each.error is not None), None)
            if failed is not None and options.get("after_failure", "cancel") == "cancel":
                raise JobCancelled(f"cancelled: job {name}, which it comes after, ended {failed}")
            found: list[Result] = [each.result() if each.error is None else None for each in before]
            entries.append(found if members is not None else found[0])
        if options.get("input", "payload") == "payload":
            return payload
        return pack_results(payload, entries)

    def find_job(self, service: str, key: str) -> JobView:
        try:
            return self.job(self._keys[service, key][0])
        except KeyError:
            raise NoSuchJob(f"no job of service {service!r} has key {key!r}") from None

    def group_results(self, id: str, *_: object, errors: str = "raise", **__: object) -> list[Any]:
        jobs = [self._job(each) for each in self._group(id)]
        return [each.result() if each.error is None or errors == "raise" else each.error for each in jobs]

    def group(self, id: str) -> GroupView:
        from dragoman.operations.group_schemas import GroupView, progress_of

        jobs = [self._job(each) for each in self._group(id)]
        outcomes: Counter[str] = Counter(each.outcome for each in jobs if each.error is not None)
        undone = outcomes.total()
        return GroupView(
            id=id,
            size=len(jobs),
            open=0,
            done=len(jobs) - undone,
            undone=undone,
            says=progress_of(len(jobs), len(jobs) - undone, outcomes),
            complete=True,
            outcomes=dict(outcomes),
            deleted=0,
            services=list(dict.fromkeys(each.service for each in jobs)),
            owner="local",
        )

    def cancel_group(self, id: str) -> GroupView:
        return self.group(id)  # all have ended

    def _group(self, id: str) -> list[str]:
        try:
            return self._groups[id]
        except KeyError:
            raise NoSuchGroup(f"there is no group {id}") from None

    def result(self, id: str, **_: object) -> bytes:
        return self._job(id).result()

    def job(self, id: str) -> JobView:
        return self._job(id).view()

    def why(self, id: str) -> str:
        job = self._job(id)
        return f"It ended {job.error}." if job.error is not None else "It is done."

    def cancel(self, id: str) -> bool:
        self._job(id)
        return False  # it has ended

    def _job(self, id: str) -> _EndedJob:
        try:
            return self._jobs[id]
        except KeyError:
            raise NoSuchJob(f"there is no job {id}") from None

    def _run(
        self, service: str, payload: bytes, attempts: int, id: str = "", *, takes_parts: bool = False
    ) -> _EndedJob:
        """Run a job to its end. Raises NoSuchService."""
        handler = self._handlers.get(service)
        if handler is None:
            known = ", ".join(self._handlers) or "none"
            raise NoSuchService(f"refused: {service!r} is not among the tasks of this eager block: {known}")
        job = _EndedJob(id or uuid.uuid4().hex, service, datetime.now(UTC), attempts)
        if handler.parts == "require" and not takes_parts:
            job.fail(parts_required(service))
            return job
        while len(job.failures) < attempts:
            info = JobInfo(service, job.id, len(job.failures) + 1)
            job.parts.clear()
            context = Context(service, info, handler.codec, partial(_keep, job.parts), lambda: False)
            try:
                if handler.is_async:
                    job.answer = bytes(_awaited(handler.perform_async(payload, context)))
                else:
                    job.answer = bytes(handler.perform(payload, context))
                break
            except HandlerFailed as problem:
                job.fail(problem.failure, problem.cause)
                if problem.failure.is_permanent:
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
    parts: list[bytes] = field(default_factory=list)  # of the answer
    answer: bytes | None = None
    cancelled: JobCancelled | None = None  # before its first attempt

    def fail(self, failure: Failure, cause: BaseException | None = None) -> None:
        """Note a failed attempt."""
        error = error_from(Outcome.FAILED, failure.sentence, failure)
        error.__cause__ = cause
        self.failures.append(error)

    @property
    def error(self) -> JobError | None:
        """The error that callers get; None if it is done."""
        if self.cancelled is not None:
            return self.cancelled
        return self.failures[-1] if self.answer is None else None

    def rest(self) -> bytes:
        """Return the result without its parts. Raises JobError."""
        if self.answer is None:
            raise cast(JobError, self.error)
        return self.answer

    def result(self) -> bytes:
        """Return the result with its parts in front. Raises JobError."""
        rest = self.rest()
        return b"".join([*self.parts, rest])

    def view(self) -> JobView:
        from dragoman.operations.schemas import AttemptView, JobView

        attempts = [
            AttemptView(number=number, worker="eager", outcome="failed", reason=str(each))
            for number, each in enumerate(self.failures, 1)
        ]
        if self.answer is not None:
            attempts.append(AttemptView(number=len(attempts) + 1, worker="eager", outcome="done"))
        return JobView(
            id=self.id,
            service=self.service,
            state="ended",
            outcome=self.outcome,
            reason=str(self.error) if self.error is not None else "",
            background=True,
            quarantined=self.outcome == "failed",
            priority=5,
            attempts=attempts,
            max_attempts=self.max_attempts,
            created=self.created,
        )

    @property
    def outcome(self) -> Literal["done", "failed", "cancelled"]:
        if self.error is None:
            return "done"
        return "failed" if self.cancelled is None else "cancelled"


class EagerFuture(concurrent.futures.Future[Any]):
    """A job that has ended, with the parts of its result."""

    attempt = 1

    def set_parts(self, parts: list[Any], attempt: int) -> None:
        self._parts = parts
        self.attempt = attempt

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

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,))  # tasks within it are eager, too
    thread.start()
    thread.join()
    return found.result()
