"""Effects: actions that the broker requests, such as sending a job or storing it.

The broker's methods append them, and the runner executes them in order. Every job creates some, so they are small.
"""

from __future__ import annotations

from dragoman.core.failure import Failure
from dragoman.core.model import Attempt, Caller, Job, Payload, Worker
from dragoman.core.recipients import Effect as Effect
from dragoman.core.recipients import Recipient
from dragoman.core.states import Outcome, RefusalReason, RemovalReason


class Delivery(Effect):
    """An effect for one recipient. All others are for the store, or are events."""

    __slots__ = ()

    def recipient(self) -> Recipient:
        raise NotImplementedError


class SendJob(Delivery):
    """Send this attempt's job to its worker."""

    __slots__ = ("attempt",)

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt

    def recipient(self) -> Recipient:
        return self.attempt.worker.recipient


class CancelAttempt(Delivery):
    """Notify the worker that the attempt has ended, if its dialect has a message for it."""

    __slots__ = ("attempt", "reason")

    def __init__(self, attempt: Attempt, reason: str) -> None:
        self.attempt = attempt
        self.reason = reason

    def recipient(self) -> Recipient:
        return self.attempt.worker.recipient


class RemoveWorker(Delivery):
    """Notify the broker side that the broker has removed this worker."""

    __slots__ = ("farewell", "reason", "worker")

    def __init__(self, worker: Worker, farewell: RemovalReason, reason: str) -> None:
        self.worker = worker
        self.farewell = farewell
        self.reason = reason

    def recipient(self) -> Recipient:
        return self.worker.recipient


class DeliverOutcome(Delivery):
    """Deliver a job's outcome to one caller. `job` is None if the submit was refused."""

    __slots__ = ("caller", "failure", "job", "outcome", "reason", "refusal", "result")

    def __init__(
        self,
        caller: Caller,
        job: Job | None,
        outcome: Outcome,
        result: Payload = b"",
        reason: str = "",
        refusal: RefusalReason | None = None,
        failure: Failure | None = None,
    ) -> None:
        self.caller = caller
        self.job = job
        self.outcome = outcome
        self.result = result
        self.reason = reason
        self.refusal = refusal
        self.failure = failure

    def recipient(self) -> Recipient:
        return self.caller.recipient
