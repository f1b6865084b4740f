"""What can go wrong for somebody who calls or works."""

from __future__ import annotations


class DragomanError(Exception):
    """The root of all errors of this package."""


class BrokerUnavailable(DragomanError, ConnectionError):
    """There is no broker at that address, or the connection to it broke."""


class JobError(DragomanError):
    """The job did not end in a result."""


class JobFailed(JobError):
    """A worker tried and could not do it."""


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


_BY_OUTCOME: dict[str, type[JobError]] = {
    "failed": JobFailed,
    "timed out": JobTimeout,
    "lost": JobLost,
    "cancelled": JobCancelled,
    "refused": JobRefused,
}

_BY_REFUSAL: dict[str, type[JobError]] = {
    "no such service": NoSuchService,
    "busy": Busy,
    "payload": PayloadTooLarge,
}


def error_from(reason: str) -> JobError:
    """The error for an answer of the form `<outcome>: <sentence>`."""
    outcome, _, sentence = reason.partition(": ")
    kind = _BY_OUTCOME.get(outcome, JobFailed)
    if kind is JobRefused:
        kind = next((each for word, each in _BY_REFUSAL.items() if sentence.startswith(word)), JobRefused)
    return kind(reason)


def last_line(problem: JobError) -> str:
    """What a traceback ends with: the sentence that is worth sending on."""
    return (str(problem).strip().splitlines() or ["it said nothing"])[-1]
