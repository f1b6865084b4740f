"""Requests and views of the operations on many jobs: batches and groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from dragoman.operations.schemas import (
    JOB_TIMEOUT,
    AfterFailure,
    Attempts,
    Base64,
    Delay,
    FailureView,
    Input,
    Jitter,
    JobIdText,
    JobTimeout,
    Keep,
    Key,
    Moment,
    OperationRequest,
    OutcomeName,
    Parameters,
    Parent,
    Priority,
    RequestId,
    RetryDelay,
    RetryMaxDelay,
    ServiceName,
    Tenant,
    Text,
    Traceparent,
    Unique,
    View,
    WaitSeconds,
)

MOST_JOBS = 10_000  # of one batch
MOST_PREDECESSORS = 1_000  # of one job
MOST_RESULTS = 1_000  # of one page
PLACE = Annotated[int, Meta(ge=0, lt=MOST_JOBS)]

GroupId = Annotated[str, Meta(pattern="^[0-9a-f]{32}$", description="Group id: 32 lower-case hex digits.")]


class BatchJob(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One job of a batch. A field that is left out has the value of the request.

    `after`: ids of jobs and groups, and indexes of jobs in this batch, from 0 on. `id`: chosen by the client, so that
    other jobs can name it, and so that a repeated request makes no second job. `group`: id of a new group, chosen by
    the client; all jobs of the batch with the same id are its members.
    """

    service: ServiceName | UnsetType = UNSET
    payload: Text | None = None
    payload_base64: Base64 | None = None
    id: JobIdText | None = None
    delay: Delay | UnsetType = UNSET
    not_before: Moment | UnsetType | None = UNSET
    priority: Priority | UnsetType = UNSET
    attempts: Attempts | UnsetType = UNSET
    timeout: JobTimeout | UnsetType | None = UNSET
    key: Key | None = None
    unique: Unique | UnsetType = UNSET
    keep: Keep | UnsetType | None = UNSET
    retry_first: RetryDelay | UnsetType | None = UNSET
    retry_cap: RetryMaxDelay | UnsetType | None = UNSET
    retry_jitter: Jitter | UnsetType | None = UNSET
    tenant: Tenant | UnsetType | None = UNSET
    parent: Parent | UnsetType | None = UNSET
    traceparent: Traceparent | UnsetType | None = UNSET
    parameters: Parameters | UnsetType = UNSET
    after: Annotated[tuple[JobIdText | PLACE, ...], Meta(max_length=MOST_PREDECESSORS)] = ()
    after_failure: AfterFailure = "cancel"
    input: Input = "payload"
    group: GroupId | None = None


class EnqueueManyRequest(OperationRequest):
    """A batch of background jobs: fields that all of them share, and the jobs."""

    service: Annotated[ServiceName | None, Meta(description="Service of the jobs that name no other.")] = None
    delay: Delay = 0.0
    not_before: Annotated[Moment | None, Meta(description="Earliest start, with its time zone.")] = None
    priority: Priority = 5
    attempts: Attempts = 3
    timeout: JobTimeout | None = JOB_TIMEOUT
    keep: Keep | None = None
    retry_first: RetryDelay | None = None
    retry_cap: RetryMaxDelay | None = None
    retry_jitter: Jitter | None = None
    tenant: Tenant | None = None
    parent: Parent | None = None
    traceparent: Traceparent | None = None
    parameters: Parameters = ()
    group: Annotated[bool, Meta(description="Make the jobs a group.")] = False
    group_id: Annotated[
        GroupId | None,
        Meta(
            description="Id of the group, chosen by the client. A second request with the same id returns the group "
            "of the first."
        ),
    ] = None
    jobs: Annotated[
        tuple[BatchJob, ...], Meta(max_length=MOST_JOBS, description="The jobs, if they are not beside the request.")
    ] = ()
    request_id: RequestId | None = None


class EnqueueManyView(View):
    """Ids of the jobs, in the order of the request; and of their group, if they are one."""

    jobs: list[JobIdText]
    group: GroupId | None = None


def progress_of(size: int, done: int, outcomes: Mapping[str, int]) -> str:
    """Return the progress of a group in words: `412 of 5,000, 3 failed`. `outcomes`: numbers of jobs that are not done.
    Jobs that were cancelled have not failed."""
    cancelled = outcomes.get("cancelled", 0)
    undone = sum(outcomes.values())
    failed = f", {undone - cancelled:,} failed" if undone > cancelled else ""
    return f"{done + undone:,} of {size:,}{failed}" + (f", {cancelled:,} cancelled" if cancelled else "")


class GroupRef(OperationRequest):
    id: GroupId


class GroupView(View):
    """A group. `says` is its progress in words: `412 of 5,000, 3 failed`.

    `open`, `done` and `undone` are the numbers of its jobs that have not ended, are done, and have ended otherwise;
    `outcomes` counts the latter by outcome. `deleted` are ended jobs whose outcome is not kept any more.
    """

    id: GroupId
    size: int
    open: int
    done: int
    undone: int
    says: str
    complete: bool
    outcomes: dict[str, int]
    deleted: int
    services: list[str]
    owner: str
    created: Moment | None = None
    ended: Annotated[Moment | None, Meta(description="Time at which the last job ended.")] = None
    kept_until: Moment | None = None


class GroupResultsRequest(OperationRequest):
    """A page of the results of a group, in the order of its jobs."""

    id: GroupId
    wait: WaitSeconds = 0.0
    start: Annotated[int, Meta(ge=0, le=MOST_JOBS, description="Index of the first job of the page.")] = 0


class MemberView(View):
    """One job of a group. `outcome` is null if it has not ended, or if it is not known any more. `size`: bytes of its
    result, or of its failure, beside the view."""

    job: JobIdText | None
    outcome: OutcomeName | None
    reason: str
    deleted: bool = False
    size: int = 0
    result: str | None = None
    result_base64: str | None = None
    error: FailureView | None = None


class GroupResultsView(View):
    """Jobs of a group, from the index `start` on. `next`: index of the next page; null: there are no more."""

    id: GroupId
    complete: bool
    size: int
    start: int
    results: list[MemberView]
    next: int | None = None
