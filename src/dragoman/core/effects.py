"""Effects: actions that the broker asks for, such as sending a job or storing it.

The broker's methods append them, and the line carries them out in order. They are made for each job, so they are small.
"""

from __future__ import annotations

from dragoman.core.failure import Failure
from dragoman.core.model import ABSENT, Attempt, Caller, Job, Payload, Worker
from dragoman.core.recipients import Effect as Effect
from dragoman.core.recipients import Recipient
from dragoman.core.states import Farewell, Outcome, Refusal


class Delivery(Effect):
    """An effect for one recipient. All others are for the store, or are events."""

    __slots__ = ()

    def recipient(self) -> Recipient:
        raise NotImplementedError


class Give(Delivery):
    """Hand this attempt's job to its worker."""

    __slots__ = ("attempt",)

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt

    def recipient(self) -> Recipient:
        return self.attempt.worker.recipient


class Recall(Delivery):
    """The attempt is over: tell the worker, where its dialect has a word for it."""

    __slots__ = ("attempt", "reason")

    def __init__(self, attempt: Attempt, reason: str) -> None:
        self.attempt = attempt
        self.reason = reason

    def recipient(self) -> Recipient:
        return self.attempt.worker.recipient


class Dismiss(Delivery):
    """The broker has let this worker go."""

    __slots__ = ("farewell", "reason", "worker")

    def __init__(self, worker: Worker, farewell: Farewell, reason: str) -> None:
        self.worker = worker
        self.farewell = farewell
        self.reason = reason

    def recipient(self) -> Recipient:
        return self.worker.recipient


class Answer(Delivery):
    """Tell one caller how its job ended. `job` is None for a submit that was refused at the door."""

    __slots__ = ("caller", "failure", "job", "outcome", "reason", "refusal", "result")

    def __init__(
        self,
        caller: Caller,
        job: Job | None,
        outcome: Outcome,
        result: Payload = b"",
        reason: str = "",
        refusal: Refusal | None = None,
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


class Accept(Delivery):
    """Tell a caller that its background job is safe: the diary has it."""

    __slots__ = ("caller", "job")

    def __init__(self, caller: Caller, job: Job) -> None:
        self.caller = caller
        self.job = job

    def recipient(self) -> Recipient:
        return self.caller.recipient


class Progress(Delivery):
    """Pass on what a running job reports, or a part of its result. Another attempt's parts begin anew."""

    __slots__ = ("attempt", "caller", "is_part", "payload")

    def __init__(self, caller: Caller, attempt: Attempt, payload: Payload, is_part: bool = False) -> None:
        self.caller = caller
        self.attempt = attempt
        self.payload = payload
        self.is_part = is_part

    def recipient(self) -> Recipient:
        return self.caller.recipient


class Save(Effect):
    """Write this job, as it is now, into the diary, then say `saved(number)`. Numbers rise; so must the commits.

    `rewrites`: what it asks for has changed since it was written first.
    """

    __slots__ = ("job", "number", "rewrites")

    def __init__(self, job: Job, number: int, rewrites: bool = False) -> None:
        self.job = job
        self.number = number
        self.rewrites = rewrites


class Note(Effect):
    """Write down something that is no job, such as that a service is paused: `value` under `key`, or nothing more."""

    __slots__ = ("key", "number", "value")

    def __init__(self, key: str, value: str | None, number: int) -> None:
        self.key = key
        self.value = value
        self.number = number  # as in Save


class Erase(Effect):
    """The keep time of this job's outcome is over: remove it from the diary."""

    __slots__ = ("job",)

    def __init__(self, job: Job) -> None:
        self.job = job


StoreEntry = Save | Note | Erase


def take_back(attempt: Attempt, effects: list[Effect]) -> bool:
    """If the attempt's Give has not been carried out yet, see that it never is: nobody can have seen the job.

    The runner may be walking through `effects`. It marks a Give as sent before it carries it out, so only an entry
    that is still ahead of it is removed.
    """
    if attempt.is_sent:  # without asking, a crowd that ends in one tick would cost its square
        return False
    for index, effect in enumerate(effects):
        if type(effect) is Give and effect.attempt is attempt:
            del effects[index]
            return True
    # Otherwise it waits for its payload or its commit, and will find that it is too late.
    return attempt.job.payload is ABSENT or attempt.job.wishes.durable
