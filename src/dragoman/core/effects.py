"""Effects: actions that the broker asks for, such as sending a job or storing it.

The broker's methods append them, and the line carries them out in order. They are made for each job, so they are small.
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
    """Hand this attempt's job to its worker."""

    __slots__ = ("attempt",)

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt

    def recipient(self) -> Recipient:
        return self.attempt.worker.recipient


class CancelAttempt(Delivery):
    """The attempt is over: tell the worker, where its dialect has a word for it."""

    __slots__ = ("attempt", "reason")

    def __init__(self, attempt: Attempt, reason: str) -> None:
        self.attempt = attempt
        self.reason = reason

    def recipient(self) -> Recipient:
        return self.attempt.worker.recipient


class RemoveWorker(Delivery):
    """The broker has let this worker go."""

    __slots__ = ("farewell", "reason", "worker")

    def __init__(self, worker: Worker, farewell: RemovalReason, reason: str) -> None:
        self.worker = worker
        self.farewell = farewell
        self.reason = reason

    def recipient(self) -> Recipient:
        return self.worker.recipient


class DeliverOutcome(Delivery):
    """Tell one caller how its job ended. `job` is None for a submit that was refused at the door."""

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


class Acknowledge(Delivery):
    """Tell a caller that its background job is safe: the diary has it."""

    __slots__ = ("caller", "job")

    def __init__(self, caller: Caller, job: Job) -> None:
        self.caller = caller
        self.job = job

    def recipient(self) -> Recipient:
        return self.caller.recipient


class DeliverProgress(Delivery):
    """Pass on what a running job reports, or a part of its result. Another attempt's parts begin anew."""

    __slots__ = ("attempt", "caller", "is_part", "payload")

    def __init__(self, caller: Caller, attempt: Attempt, payload: Payload, is_part: bool = False) -> None:
        self.caller = caller
        self.attempt = attempt
        self.payload = payload
        self.is_part = is_part

    def recipient(self) -> Recipient:
        return self.caller.recipient
