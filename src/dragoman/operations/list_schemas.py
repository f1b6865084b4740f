"""Requests and views of lists and facts: jobs, services, workers, listeners, the broker."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta

from dragoman.operations.field_types import Unanswered, UnansweredShards
from dragoman.operations.schemas import (
    JobIdText,
    JobView,
    Key,
    Moment,
    OperationRequest,
    OutcomeName,
    ServiceName,
    ServiceView,
    State,
    View,
    WorkerView,
)

MOST_ROWS = 1_000  # of one page
MOST_SEARCHED = 20_000  # jobs that one request with a filter of its own looks at

WorkerStateName = Literal["starting", "idle", "busy", "stuck", "backing off", "detached", "draining"]
Filter = Annotated[str, Meta(min_length=1, max_length=256)]
Limit = Annotated[int, Meta(ge=1, le=MOST_ROWS)]
Cursor = Annotated[str, Meta(min_length=1, max_length=512)]
After = Annotated[Cursor | None, Meta(description="Only rows after this one: `after` of the previous page.")]


# ---------------------------------------------------------------- jobs


class ListJobsRequest(OperationRequest):
    service: Annotated[ServiceName | None, Meta(description="Only jobs of this service.")] = None
    state: Annotated[State | None, Meta(description="Only jobs in this state.")] = None
    outcome: Annotated[OutcomeName | None, Meta(description="Only jobs with this outcome.")] = None
    quarantined: Annotated[
        bool | None, Meta(description="Only jobs in quarantine (true), or only jobs that are not (false).")
    ] = None
    kind: Annotated[Literal["call", "background"] | None, Meta(description="Only calls, or only background jobs.")] = (
        None
    )
    caller: Annotated[Filter | None, Meta(description="Only jobs of callers of this dialect.")] = None
    worker: Annotated[
        Filter | None, Meta(description="Only jobs with an attempt on the worker of this name or number.")
    ] = None
    text: Annotated[
        Filter | None,
        Meta(description="Only jobs whose id begins with this text, or whose key, worker or reason contains it."),
    ] = None
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
    undone: Annotated[bool, Meta(description="Only jobs that ended otherwise than done.")] = False
    group: Annotated[JobIdText | None, Meta(description="Only jobs of the group with this id.")] = None
    parent: Annotated[JobIdText | None, Meta(description="Only jobs that the handler of this job submitted.")] = None
    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS, description="Maximum number of jobs.")] = 100
    after: Annotated[JobIdText | None, Meta(description="Only jobs older than this one.")] = None


class FindJobRequest(OperationRequest):
    """The service and the idempotency key of a job."""

    service: ServiceName
    key: Key
    owner: Annotated[
        Filter | None,
        Meta(
            description="Principal that owns the job, by default the one that asks. Jobs of others need `administer` "
            "over the service."
        ),
    ] = None


class JobsView(View):
    """A page of jobs, newest first.

    A request with another filter than `service`, `state`, `outcome` and `quarantined` looks at 20,000 jobs at most.
    `searched` is the number of jobs that it looked at; if `complete` is false, there are older ones, and `after`
    continues the search; or, in a cluster, some shards are without an answer, and `unanswered_shards` names them.
    """

    jobs: list[JobView]
    after: JobIdText | None = None
    searched: int = 0
    complete: bool = True
    unanswered: Unanswered = UNSET
    unanswered_shards: UnansweredShards = UNSET


class JobCountsRequest(OperationRequest):
    service: Annotated[ServiceName | None, Meta(description="Only jobs of this service.")] = None


class JobCountsView(View):
    """Exact numbers of jobs. `done` and `undone` count the ended jobs whose outcome is kept, which calls without a key
    are not. `quarantined` counts a part of `undone`."""

    waiting: int
    delayed: int
    running: int
    done: int
    undone: int
    quarantined: int
    dependent: int = 0
    unanswered: Unanswered = UNSET
    unanswered_shards: UnansweredShards = UNSET


WhyKind = Literal[
    "done",
    "undone",
    "storing",
    "running",
    "worker unreachable",
    "worker silent",
    "retry",
    "declined",
    "delayed",
    "dependent",
    "shutting down",
    "paused",
    "no worker",
    "max_running",
    "service max_running",
    "max_running_per_tenant",
    "rate",
    "loading",
    "nested",
    "all busy",
    "none free",
    "next",
]


class WhyAboutView(View):
    """The service and the worker that the sentence is about."""

    service: str
    worker: int | None = None


class WhyView(View):
    """The sentence, and the same for programs.

    `ahead` is the number of waiting jobs that are dispatched before this one, and `turn_in` the seconds until its turn
    at the present rate. Both are null if they are not known. `earlier` has a sentence about each of the latest three
    attempts that ended without a result and are not in `why`. `more` has sentences about its idempotency key and about
    the time for which its outcome is kept, if the caller chose them.
    """

    id: JobIdText
    why: str
    kind: WhyKind | None = None
    ahead: int | None = None
    turn_in: float | None = None
    about: WhyAboutView | None = None
    earlier: str = ""
    more: str = ""


# ---------------------------------------------------------------- services and workers


class ListServicesRequest(OperationRequest):
    sort: Annotated[
        Literal["need", "name", "waiting", "rate"] | None,
        Meta(
            description="Order: need of attention, name, most waiting jobs, or highest rate. Without it by name if "
            "there is a `limit` or an `after`, else as the services became known."
        ),
    ] = None
    text: Annotated[Filter | None, Meta(description="Only services whose name contains this text.")] = None
    limit: Annotated[Limit | None, Meta(description="Maximum number of services; without it all.")] = None
    after: After = None


class ServicesView(View):
    services: list[ServiceView]
    after: str | None = None
    unanswered: Unanswered = UNSET


class ListWorkersRequest(OperationRequest):
    state: Annotated[WorkerStateName | None, Meta(description="Only workers in this state.")] = None
    dialect: Annotated[Filter | None, Meta(description="Only workers of this dialect.")] = None
    service: Annotated[ServiceName | None, Meta(description="Only workers that offer this service.")] = None
    text: Annotated[
        Filter | None, Meta(description="Only workers whose name or service contains this text, or with this number.")
    ] = None
    sort: Annotated[
        Literal["need", "slow", "silent", "name"] | None,
        Meta(
            description="Order: need of attention, slowest, longest silent as a share of the lease, or name. Without "
            "it by number if there is a `limit` or an `after`, else as the workers joined."
        ),
    ] = None
    limit: Annotated[Limit | None, Meta(description="Maximum number of workers; without it all.")] = None
    after: After = None


class WorkerCountsView(View):
    """Numbers of all workers, by state and by dialect."""

    state: dict[str, int]
    dialect: dict[str, int]


class WorkersView(View):
    """A list of workers. `counts` is null for a client without `see` over all services."""

    workers: list[WorkerView]
    counts: WorkerCountsView | None = None
    after: str | None = None
    unanswered: Unanswered = UNSET


class FleetView(View):
    """All workers in the order in which they joined, as at most 2,000 squares.

    `states` has a letter for each square: i idle, b busy, s stuck, d detached, r draining, t starting, o backing off. A
    square stands for `each` workers and has the state that needs attention most. `ids` are the numbers of the workers,
    one for each square: the first worker in that state. `first` is the number of the first worker, or null.
    """

    each: int
    states: str
    first: int | None
    ids: list[int]
    unanswered: Unanswered = UNSET


# ---------------------------------------------------------------- the broker


class ListenerView(View):
    """A listener. `received` and `sent` are bytes since the broker started, `bad` counts bad messages."""

    url: str
    dialect: str
    edition: str | None
    frontend: str | None
    roles: list[Literal["worker", "caller"]]
    peers: int
    received: int
    sent: int
    bad: int
    bad_reasons: dict[str, int]
    insecure: Annotated[bool, Meta(description="True if peers on other machines need no credentials.")]


class ListenersView(View):
    listeners: list[ListenerView]


class LimitView(View):
    """A limit of the broker and how much of it is used."""

    name: str
    used: int
    of: int


class BrokerView(View):
    """The broker itself. `name` is the name of its machine, `instance` differs for every start. `settings` are those
    that are not default, without listeners; `store_size` is the bytes of the store's files, or null if nothing is kept.
    """

    version: str
    compiled: bool
    python: str
    started: Moment
    name: str
    instance: str
    limits: list[LimitView]
    settings: dict[str, str]
    store_size: int | None
