"""Requests and views of the operations on the quarantine."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta

from dragoman.operations.field_types import RowBrokers, Unanswered, UnansweredShards
from dragoman.operations.schemas import JobIdText, Moment, OperationRequest, OutcomeName, View

GroupId = Annotated[
    str,
    Meta(
        pattern="^[0-9a-f]{16}$",
        description="Id of a group: 16 hex digits, as in the list of the quarantine. A restart does not change it.",
        examples=["9f2c61e07ad35b18"],
    ),
]


class RetryGroupRequest(OperationRequest):
    """The group to retry, and the speed."""

    group: GroupId
    rate: Annotated[float, Meta(ge=0.1, le=1_000, description="Jobs to retry a second.")] = 20.0


class QuarantineGroupView(View):
    """Quarantined jobs with the same cause. `reason` has `…` in place of numbers, hexadecimal values and quoted texts.

    `first` and `last`: end of the first and the last job that came in. `dialects`: those of the workers of the last
    attempts, as far as this run of the broker has seen them. `example`: the job that came in last.
    """

    group: GroupId
    service: str
    outcome: OutcomeName
    reason: str
    count: int
    first: Moment | None
    last: Moment | None
    dialects: list[str]
    example: JobIdText
    brokers: RowBrokers = UNSET


class QuarantineView(View):
    """Groups, the latest first. `more`: number of further jobs, whose causes exceed the 1,000 that are kept apart."""

    groups: list[QuarantineGroupView]
    more: int = 0
    unanswered: Unanswered = UNSET
    unanswered_shards: UnansweredShards = UNSET


class RetryGroupView(View):
    """Progress of a retry: jobs retried so far, of this number."""

    group: GroupId
    retried: int
    of: int
    unanswered: Unanswered = UNSET
    unanswered_shards: UnansweredShards = UNSET
