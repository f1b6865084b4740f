"""What can go wrong for somebody who calls or works."""

from __future__ import annotations

from dragoman.dialects.sides import Failure, Outcome


class DragomanError(Exception):
    """The root of all errors of this package."""


class BrokerUnavailable(DragomanError, ConnectionError):
    """There is no broker at that address, or the connection to it broke."""


class WrongDialect(BrokerUnavailable):
    """The port speaks another dialect than the address says, or is no broker's."""


class Unsupported(DragomanError):
    """The dialect of this address has no word for what was asked."""


class NotFound(DragomanError, LookupError):
    """The broker knows nothing of that name."""


class JobError(DragomanError):
    """The job did not end in a result."""


class JobFailed(JobError):
    """A worker tried and could not do it. As far as its wire has words for it, it says what and where."""

    def __init__(
        self, reason: str, remote_type: str = "", remote_message: str = "", remote_traceback: str = ""
    ) -> None:
        super().__init__(reason)
        self.remote_type = remote_type  # such as ValueError
        self.remote_message = remote_message
        self.remote_traceback = remote_traceback  # text

    def __reduce__(self) -> tuple[type[JobFailed], tuple[str, str, str, str]]:
        return type(self), (str(self), self.remote_type, self.remote_message, self.remote_traceback)


class JobTimeout(JobError, TimeoutError):
    """No result came in time."""


class JobLost(JobError):
    """Its worker vanished while it ran."""


class JobCancelled(JobError):
    """It was withdrawn."""


class JobRefused(JobError):
    """The broker would not take it."""


class NoSuchService(JobRefused):
    """No worker offers the service."""


class Busy(JobRefused):
    """The broker has no room for more."""


class PayloadTooLarge(JobRefused):
    """The payload is over the broker's limit."""


class NoSuchJob(JobError, NotFound):
    """There is no such job: it never was, or its outcome was not kept any longer."""


class OperationError(DragomanError):
    """The broker will not answer a question. Whoever asked makes one of the errors above of it."""

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
}


def error_from(outcome: Outcome | None, reason: str, failure: Failure | None = None, refusal: str = "") -> JobError:
    """The error for a job that ended without a result. `outcome` is None if it is not known."""
    if outcome is None:
        return JobFailed(reason)
    kind = _BY_OUTCOME[outcome]
    if kind is JobFailed and failure is not None and failure.type:
        return JobFailed(f"{outcome}: {failure.sentence}", failure.type, failure.message, failure.traceback)
    if kind is JobRefused:
        kind = _BY_REFUSAL.get(refusal, JobRefused)
    return kind(f"{outcome}: {reason}" if reason else outcome.value)
