"""Effects before the outcome of a job: it is accepted, or it reports progress. A plain call has none of them."""

from __future__ import annotations

from dragoman.core.effects import Delivery
from dragoman.core.model import Attempt, Caller, Job, Payload
from dragoman.core.recipients import Recipient


class Acknowledge(Delivery):
    """Confirm to a caller that its background job is committed."""

    __slots__ = ("caller", "job")

    def __init__(self, caller: Caller, job: Job) -> None:
        self.caller = caller
        self.job = job

    def recipient(self) -> Recipient:
        return self.caller.recipient


class DeliverProgress(Delivery):
    """Deliver a progress report of a running job, or a part of its result. Each attempt starts its parts again."""

    __slots__ = ("attempt", "caller", "is_part", "payload")

    def __init__(self, caller: Caller, attempt: Attempt, payload: Payload, is_part: bool = False) -> None:
        self.caller = caller
        self.attempt = attempt
        self.payload = payload
        self.is_part = is_part

    def recipient(self) -> Recipient:
        return self.caller.recipient
