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

from dragoman.core.results_payload import Entry, Result, pack_results
from dragoman.dialects.sides import NOTHING_SAID, Outcome
from dragoman.sdk.context import Context
from dragoman.sdk.errors import JobCancelled, JobError, NoSuchGroup, NoSuchJob, NoSuchService, error_from
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
        self._groups: dict[str, list[str]] = {}  # ids of their jobs

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

    def enqueue(self, service: str, payload: bytes, **options: Any) -> str:
        return self._enqueue(uuid.uuid4().hex, service, payload, options)

    def enqueue_many(self, service: str, payloads: Iterable[bytes], **_: object) -> list[str]:
        return [self.enqueue(service, payload) for payload in payloads]

    def enqueue_jobs(self, jobs: Iterable[NewJob]) -> list[str]:
        """Run jobs. Each is behind those that it comes after, as tasks pass them."""
        found = list(jobs)
        for each in found:
            group = each.options.get("group")
            if group is not None:
                self._groups.setdefault(group, []).append(each.id)
        for each in found:
            self._enqueue(each.id, each.service, each.payload, {**each.options})
        return [each.id for each in found]

    def _enqueue(self, id: str, service: str, payload: bytes, options: dict[str, Any]) -> str:
        created = datetime.now(UTC)
        try:
            payload = self._with_input(payload, options)
            self._jobs[id] = service, created, self._run(service, payload)
        except NoSuchService:
            raise
        except JobError as error:
            self._jobs[id] = service, created, error
        return id

    def _with_input(self, payload: bytes, options: dict[str, Any]) -> bytes:
        """Return the payload that a worker would get. Raises JobCancelled if a job before it has failed."""
        entries: list[Entry] = []
        for name in ids_of(options.get("after", ())):
            members = self._groups.get(name)
            results = [self._job(each)[2] for each in members or [name]]
            failed = next((each for each in results if isinstance(each, JobError)), None)
            if failed is not None and options.get("after_failure", "cancel") == "cancel":
                raise JobCancelled(f"cancelled: job {name}, which it comes after, ended {failed}")
            found: list[Result] = [None if isinstance(each, JobError) else each for each in results]
            entries.append(found if members is not None else found[0])
        if options.get("input", "payload") == "payload":
            return payload
        return pack_results(payload, entries)

    def group_results(self, id: str, *_: object, errors: str = "raise", **__: object) -> list[Any]:
        found = [self._job(each)[2] for each in self._group(id)]
        failed = next((each for each in found if isinstance(each, JobError)), None)
        if failed is not None and errors == "raise":
            raise failed
        return found

    def group(self, id: str) -> GroupView:
        from dragoman.operations.group_schemas import GroupView

        jobs = [self._job(each) for each in self._group(id)]
        undone = sum(isinstance(result, JobError) for _, __, result in jobs)
        return GroupView(
            id=id,
            size=len(jobs),
            open=0,
            done=len(jobs) - undone,
            undone=undone,
            says=f"{len(jobs):,} of {len(jobs):,}" + (f", {undone:,} failed" if undone else ""),
            complete=True,
            outcomes={"failed": undone} if undone else {},
            deleted=0,
            services=list(dict.fromkeys(service for service, _, __ in jobs)),
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
