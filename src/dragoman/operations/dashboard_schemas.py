"""Requests and views of the dashboard's data: snapshots, series, changes, findings that need attention.

A quantile is null if nothing ended. `0.0005` means half a millisecond or less: shorter durations are not told apart.
Every other quantile is above 0.0005. Rates and quantiles are those of the last 10 seconds.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from dragoman.operations.field_types import Unanswered
from dragoman.operations.ladder_schemas import ConversationView
from dragoman.operations.list_schemas import WhyView
from dragoman.operations.schemas import (
    JobIdText,
    JobView,
    Moment,
    OperationRequest,
    OutcomeName,
    ServiceName,
    ServiceView,
    View,
    WorkerView,
)

RangeName = Annotated[
    Literal["5m", "1h", "24h"],
    Meta(description="Length of the series: 150 values of 2 s, 180 of 20 s, or 180 of 8 minutes."),
]
Level = Literal["info", "warning", "error"]
Number = float | None
Numbers = list[float | None]
FlowRow = Annotated[
    tuple[str, str, float, float],
    Meta(
        description="Dialect of the caller, dialect of the worker, jobs a second, mean seconds that the broker adds to "
        "a job."
    ),
]


Sources = Annotated[
    list[str] | UnsetType, Meta(description="Brokers that have reported it. Present only in a cluster.")
]


class OverviewRequest(OperationRequest):
    range: RangeName = "5m"


class ServiceSeriesRequest(OperationRequest):
    name: ServiceName
    range: RangeName = "5m"


class AboutView(View, omit_defaults=True):
    """The service, worker or schedule that a sentence is about; empty: the broker."""

    service: str | None = None
    worker: int | None = None
    schedule: str | None = None


class AttentionView(View):
    """A finding that needs attention: its sentence, the time since which it holds, and the advice."""

    kind: str
    level: Level
    about: AboutView
    text: str
    since: Moment
    advice: str
    brokers: Sources = UNSET


class ChangeView(View):
    """A change; `count` changes of the same kind within 2 seconds are one."""

    at: Moment
    kind: str
    service: str | None
    count: int
    text: str
    level: Level
    brokers: Sources = UNSET


class TotalsView(View):
    """Totals of all services. Rates are jobs a second; `kept` is the number of ended jobs whose outcome is kept."""

    arrived: float
    done: float
    undone: dict[str, float]
    waiting: int
    delayed: int
    running: int
    slots: int
    quarantined: int
    present: int
    kept: int
    schedules: int
    services: int
    workers: dict[str, int]
    dependent: int = 0


class BrokerNumbersView(View):
    """Load of the broker. `cpu`, `dashboard`: shares of one core, of all work and of the work for dashboards. Of
    several brokers, each value is the highest, and `peers` is the sum."""

    cpu: float
    dashboard: float
    lag_p99: Number
    commit_p99: Number
    resident: int | None
    peers: int


class SnapshotBrokerView(View):
    """One broker of the cluster. Its numbers are null for a principal that may not see all services."""

    name: str
    here: Annotated[bool, Meta(description="It is the broker that was asked.")]
    version: str
    ready: bool
    draining: bool
    problems: list[str]
    shards: Annotated[int | None, Meta(description="Shards of the background jobs that it owns.")] = None
    waiting: int | None = None
    running: Annotated[int | None, Meta(description="Its jobs that run, at any broker.")] = None
    workers: Annotated[int | None, Meta(description="Workers that are connected to it.")] = None
    idle: Annotated[int | None, Meta(description="Those of them that are idle.")] = None
    numbers: BrokerNumbersView | None = None


class ReasonView(View):
    """Jobs that ended with the same outcome and reason. In a reason, `…` stands for numbers, hexadecimal values and
    quoted texts. `job` is the latest one, null if neither its outcome nor its messages are kept."""

    outcome: OutcomeName
    reason: str
    count: int
    last: Moment
    job: JobIdText | None


class PageView(View, omit_defaults=True):
    """The part of a snapshot for one page: a service with its sentence, a worker, or a job with its `why`.

    `callers` and `reasons` are those of the recorded jobs of the service: of all while few arrive, of more about 50 in
    a second. They need the right `see` over it. `callers` counts by dialect, and the latest jobs weigh most; `reasons`
    are those of the last hour, the most frequent first.
    """

    says: str | None = None
    service: ServiceView | None = None
    states: Annotated[
        dict[str, int] | None, Meta(description="Workers of the service by state. Present only in a cluster.")
    ] = None
    callers: dict[str, int] | None = None
    reasons: list[ReasonView] | None = None
    worker: WorkerView | None = None
    job: JobView | None = None
    why: WhyView | None = None
    ladder: Annotated[
        ConversationView | None,
        Meta(description="Messages of the worker, or of the job until it ends; recorded while the stream is open."),
    ] = None


class SnapshotView(View):
    """The state of the broker at one moment, complete; in a cluster, that of all brokers together.

    Without `see` over all services, `totals` and `broker` are null, and the lists have the visible services only. In a
    cluster, rates and numbers are sums, and a quantile is the highest of all brokers. `ready` and `problems` are those
    of the broker that was asked; `brokers` has those of each.
    """

    instance: Annotated[str, Meta(description="Random id of this run of the broker.")]
    seq: int
    at: Moment
    ready: bool
    problems: list[str]
    totals: TotalsView | None
    broker: BrokerNumbersView | None
    attention: list[AttentionView]
    services: Annotated[list[ServiceView], Meta(description="The 60 that need most, or the one of the page.")]
    flow: list[FlowRow]
    changes: Annotated[list[ChangeView], Meta(description="The latest 50, newest first.")]
    brokers: Annotated[
        list[SnapshotBrokerView] | UnsetType,
        Meta(description="Brokers whose part is in the snapshot. Present only in a cluster."),
    ] = UNSET
    unanswered: Unanswered = UNSET
    page: PageView | None = None


class MarkView(View):
    """A mark in a chart."""

    at: Moment
    text: str
    kind: Annotated[str | UnsetType, Meta(description="Kind of the change. Present only in a cluster.")] = UNSET
    brokers: Sources = UNSET


class QuantilesView(View):
    p50: Numbers
    p95: Numbers
    p99: Numbers


class SeriesView(View, rename={"begin": "from"}):
    """Values of one service, oldest first, one every `step` seconds. `from`: start of the first value. Null: not
    known, because the broker did not run, or nothing ended. Longer steps have means of rates and maxima of all others.
    In a cluster, the values of all brokers are sums, and the highest of quantiles. Their steps begin at different
    moments: each value is that of the nearest step.
    """

    step: float
    begin: Moment
    arrived: Numbers
    done: Numbers
    undone: Numbers
    waiting: Numbers
    running: Numbers
    wait: QuantilesView
    run: QuantilesView
    marks: list[MarkView]
    unanswered: Unanswered = UNSET


class TotalSeriesView(View):
    arrived: Numbers
    done: Numbers
    undone: Numbers
    waiting: Numbers
    running: Numbers
    wait95: Numbers


class ServiceRatesView(View):
    done: Numbers


class OverviewSeriesView(View, rename={"begin": "from"}):
    """Values of all services together, and of each listed service, as in SeriesView."""

    step: float
    begin: Moment
    total: TotalSeriesView | None
    services: dict[str, ServiceRatesView]
    marks: list[MarkView]


class OverviewView(SnapshotView, kw_only=True):
    """A snapshot, and the series of a range."""

    series: OverviewSeriesView
