"""Exceptions of clients and workers."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from dragoman.dialects.sides import Failure, Outcome

NOT_ALLOWED = 3  # exit code of a worker that the broker does not accept, as of commands without a broker


class DragomanError(Exception):
    """Base class of all exceptions of this package."""


class BrokerUnavailable(DragomanError, ConnectionError):
    """No broker answers at the address, or the connection to it was lost."""


class WrongDialect(BrokerUnavailable):
    """The port speaks another dialect than the address names, or does not belong to a broker: with TLS, its certificate
    is not the broker's."""

    def __init__(self, sentence: str, operation_sentence: str = "") -> None:
        super().__init__(sentence)
        # The message for an operation, which fewer dialects have.
        self.operation_sentence = operation_sentence or sentence


class NotAllowed(BrokerUnavailable):
    """The broker does not accept the key, token or certificate of this client or worker, or requires one."""


class Unsupported(DragomanError):
    """The dialect of the address does not support the request."""


class NotFound(DragomanError, LookupError):
    """The broker has no job, service, worker or schedule with that id or name."""


class JobError(DragomanError):
    """The job ended without a result."""


class JobFailed(JobError):
    """The handler failed. Type, message and traceback of its error are set if the worker's dialect carries them."""

    def __init__(
        self, reason: str, remote_type: str = "", remote_message: str = "", remote_traceback: str = ""
    ) -> None:
        super().__init__(reason)
        self.remote_type = remote_type  # such as ValueError
        self.remote_message = remote_message
        self.remote_traceback = remote_traceback  # text

    def __reduce__(self) -> tuple[type[JobFailed], tuple[str, str, str, str]]:
        return type(self), (str(self), self.remote_type, self.remote_message, self.remote_traceback)


class Retry(DragomanError):
    """Raised by a handler: the attempt failed, and the job is retried after `delay` seconds while attempts remain."""

    def __init__(self, delay: float, reason: str = "") -> None:
        if not 0 <= delay < inf:
            raise ValueError(f"delay={delay}: must be a number of seconds, 0 or more")
        super().__init__(delay, reason)
        self.delay = delay
        self.reason = reason

    def __str__(self) -> str:
        return self.reason or f"its handler requests another attempt after {self.delay:g} s"


class PermanentFailure(DragomanError):
    """Raised by a handler: the job failed and is not retried, whatever its number of attempts."""


class WrongArguments(PermanentFailure, ValueError):
    """The arguments of a job do not fit the parameters of its task.

    `unknown`: names among them that are no parameters, and `known`: all parameters, if a worker found that. A
    background job may then wait for a worker that knows them.
    """

    def __init__(self, *args: object, unknown: Sequence[str] = (), known: Sequence[str] = ()) -> None:
        super().__init__(*args)
        self.unknown = tuple(unknown)
        self.known = tuple(known)


class JobTimeout(JobError, TimeoutError):
    """A time-out ended before the result arrived."""


class JobLost(JobError):
    """The worker crashed or disconnected during the job."""


class JobCancelled(JobError):
    """The job was cancelled."""


class JobRefused(JobError):
    """The broker did not accept the job."""


class NoSuchService(JobRefused):
    """No worker offers the service."""


class Busy(JobRefused):
    """A limit of the broker, such as max_jobs, is reached. Retry later."""


class PartlyEnqueued(JobRefused):
    """Some jobs of a large batch were enqueued, and the next ones were refused. `ids` has those that were enqueued; the
    cause is the error of the others, none of which was."""

    def __init__(self, message: str, ids: list[str]) -> None:
        super().__init__(message)
        self.ids = ids

    def __reduce__(self) -> tuple[type[PartlyEnqueued], tuple[str, list[str]]]:
        return type(self), (str(self), self.ids)


class PayloadTooLarge(JobRefused):
    """The payload is larger than the broker's limit."""


class Forbidden(JobError):
    """The principal of this client lacks a right. The message names the right, and the command that gives it."""


class NoSuchGroup(JobError, NotFound):
    """No group has this id: it never existed, or its outcomes were deleted."""


class NoSuchJob(JobError, NotFound):
    """No job has this id: it never existed, or its outcome was deleted."""


class OperationError(DragomanError):
    """An operation failed in the broker. Clients convert it to one of the errors above."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail


_BY_OUTCOME: dict[Outcome, type[JobError]] = {
    Outcome.FAILED: JobFailed,
    Outcome.TIMED_OUT: JobTimeout,
    Outcome.LOST: JobLost,
    Outcome.CANCELLED: JobCancelled,
    Outcome.REFUSED: JobRefused,
}

_BY_REFUSAL: dict[str, type[JobError]] = {
    "no such service": NoSuchService,
    "busy": Busy,
    "too large": PayloadTooLarge,
    "forbidden": Forbidden,
}


def error_from(outcome: Outcome | None, reason: str, failure: Failure | None = None, refusal: str = "") -> JobError:
    """Return the error for a job that ended without a result. `outcome` is None if it is unknown."""
    if outcome is None:
        return JobFailed(reason)
    kind = _BY_OUTCOME[outcome]
    if kind is JobFailed and failure is not None and failure.type:
        return JobFailed(f"{outcome}: {failure.sentence}", failure.type, failure.message, failure.traceback)
    if kind is JobRefused:
        kind = _BY_REFUSAL.get(refusal, JobRefused)
    return kind(f"{outcome}: {reason}" if reason else outcome.value)
