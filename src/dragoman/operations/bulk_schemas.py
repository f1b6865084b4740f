"""Requests and views of acts on many jobs: retry, cancel and delete by filter."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta

from dragoman.operations.field_types import Unanswered, UnansweredShards
from dragoman.operations.list_schemas import Filter
from dragoman.operations.schemas import JobView, Moment, OperationRequest, OutcomeName, ServiceName, View

FIRST_JOBS = 10  # number of jobs in a view

BulkId = Annotated[
    str,
    Meta(
        pattern="^[0-9a-f]{32}$",
        description="Id of the bulk act: 32 lower-case hex digits.",
        examples=["5d0e2b7c9a4f4f0f8e31c07a6b12d9e4"],
    ),
]
BulkActName = Literal["retry", "cancel", "delete"]
Rate = Annotated[float, Meta(ge=0.1, le=100_000)]
Lease = Annotated[float, Meta(ge=1, le=3_600)]


class BulkRequest(OperationRequest):
    """A filter of jobs. A request without any filter needs `all`."""

    service: Annotated[ServiceName | None, Meta(description="Only jobs of this service.")] = None
    reason: Annotated[
        Filter | None, Meta(description="Only jobs with this text in their reason, or in that of an attempt.")
    ] = None
    since: Annotated[
        Moment | None,
        Meta(description="Only jobs that ended, or were submitted if they have not, at this time or later."),
    ] = None
    until: Annotated[Moment | None, Meta(description="Only jobs that ended, or were submitted, before this time.")] = (
        None
    )
    all: Annotated[bool, Meta(description="All jobs that match; needed if there is no filter.")] = False
    dry_run: Annotated[bool, Meta(description="Change nothing: only count the jobs, and show the first.")] = False
    rate: Annotated[Rate | None, Meta(description="Jobs a second; without it as many as the broker can.")] = None
    lease: Annotated[
        Lease | None,
        Meta(
            description="Seconds after which the act stops if nobody asks for its progress. Without it, the act goes "
            "on to its end."
        ),
    ] = None
    id: Annotated[
        BulkId | None,
        Meta(description="Id of the bulk act, chosen by the client: the same request again returns its progress."),
    ] = None


class RetryJobsRequest(BulkRequest):
    """A filter of jobs in quarantine."""

    outcome: Annotated[OutcomeName | None, Meta(description="Only jobs with this outcome.")] = None


class CancelJobsRequest(BulkRequest):
    """A filter of jobs that have not ended."""

    state: Annotated[
        Literal["dependent", "waiting", "delayed", "running", "pending"] | None,
        Meta(description="Only jobs in this state; pending: dependent, waiting or delayed ones."),
    ] = None


class DeleteJobsRequest(BulkRequest):
    """A filter of ended jobs."""

    outcome: Annotated[OutcomeName | None, Meta(description="Only jobs with this outcome.")] = None
    quarantined: Annotated[
        bool | None, Meta(description="Only jobs in quarantine (true), or only jobs that are not (false).")
    ] = None


class BulkRef(OperationRequest):
    id: BulkId


class BulkView(View):
    """Progress of an act on many jobs.

    `of` jobs matched when it began, `quarantined` of them in quarantine. `done` are on disk. `left_out` had changed
    before their turn, or could not be acted on; `left_out_reason` is that of the first. `jobs` are the first that
    matched. `over`: it has ended. `problem`: the reason for which it waits, or has stopped before the end.
    """

    id: BulkId
    act: BulkActName
    dry_run: bool
    of: int
    done: int
    left_out: int
    over: bool
    problem: str
    quarantined: int
    left_out_reason: str
    jobs: list[JobView]
    unanswered: Unanswered = UNSET
    unanswered_shards: UnansweredShards = UNSET
