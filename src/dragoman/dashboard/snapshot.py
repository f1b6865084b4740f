"""Makes snapshots: the views of one moment, for a principal that sees all services, or without what it may not see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from dragoman.core.broker import Broker
from dragoman.core.job_counts import count_all
from dragoman.core.model import Service
from dragoman.core.recipients import Recipient
from dragoman.core.rights import Principal
from dragoman.core.states import IDLE
from dragoman.dashboard.attention import Attention, Standing
from dragoman.dashboard.changes import Change, Changes
from dragoman.dashboard.facts import LimitFacts
from dragoman.dashboard.load import Load
from dragoman.dashboard.quantiles import rounded
from dragoman.dashboard.quarantine_growth import QuarantineGrowth
from dragoman.dashboard.sampler import Sampler, oldest
from dragoman.dashboard.starvation_watch import StarvationWatch
from dragoman.operations.dashboard_schemas import (
    AttentionView,
    BrokerNumbersView,
    ChangeView,
    MarkView,
    SnapshotBrokerView,
    SnapshotView,
    TotalsView,
)
from dragoman.operations.limits import limits_view
from dragoman.operations.scheduler import Scheduler
from dragoman.operations.schemas import HealthView, ServiceView
from dragoman.operations.service_views import OtherBrokers, leave_out_others
from dragoman.operations.views import moment
from dragoman.operations.visibility import may_see_all, sees_service

MOST_CHANGES = 50
MOST_MARKS = 30
MOST_ATTENTION = 20


class ClusterFacts(OtherBrokers, Protocol):
    """The cluster of the broker: its name there, and the shards that it owns."""

    @property
    def name(self) -> str: ...

    def shards(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Sources:
    """The parts of a broker that snapshots are made of."""

    broker: Broker
    sampler: Sampler
    load: Load
    changes: Changes
    attention: Attention
    quarantine: QuarantineGrowth
    health: Callable[[], HealthView]
    offset: Callable[[], float]  # seconds that the wall clock is ahead
    scheduler: Scheduler
    problem: Callable[[], str | None]  # of the store
    limits: Callable[[], list[LimitFacts]]  # of the server
    resident: Callable[[], int | None]
    instance: str
    listeners: Mapping[Recipient, str]  # URLs by broker side
    starvation: StarvationWatch


class Snapshots:
    """Makes snapshots of one broker, with rising numbers."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self.number = 0
        self.cluster: ClusterFacts | None = None  # the server sets it

    def view(self, principal: Principal, now: float, service: str | None = None) -> SnapshotView:
        """Return the snapshot that a principal may see. `service`: the only one to include. In a cluster, it has what
        this broker alone counts, so that those of all brokers can be added."""
        sources = self._sources
        sees_all = may_see_all(principal)
        health = sources.health()
        view = SnapshotView(
            instance=sources.instance,
            seq=self.number,
            at=moment(now + sources.offset()),
            ready=health.ready,
            problems=health.problems if sees_all else [],
            totals=self._totals() if sees_all else None,
            broker=self._numbers(health) if sees_all else None,
            attention=[self._attention(each) for each in self._visible_attention(principal)[:MOST_ATTENTION]],
            services=self.rows(principal, now, service),
            flow=sources.load.flow() if sees_all else [],
            changes=[self._change(each) for each in _visible(sources.changes.latest(MOST_CHANGES), principal)],
        )
        if self.cluster is not None:
            view.brokers = [self._own_row(self.cluster, view, health, sees_all)]
        return view

    def rows(self, principal: Principal, now: float, service: str | None = None) -> list[ServiceView]:
        """Return the services of a snapshot: those first that a sentence about attention names, then by their need."""
        services = self._sources.broker.worker_registry.services
        if service is not None:
            chosen = [services[service]] if service in services and sees_service(principal, service) else []
        elif may_see_all(principal):
            chosen = [each for each in self._sources.sampler.first if services.get(each.name) is each]
        else:
            visible = [each for each in services.values() if sees_service(principal, each.name)]
            chosen = self._sources.sampler.by_need(visible, now)
        named = {name for each in self._visible_attention(principal) for name in each.finding.services}
        chosen.sort(key=lambda each: each.name not in named)
        taken = self.cluster.running_by_service() if self.cluster is not None else {}
        return [self._row(each, now, taken) for each in chosen]

    def _row(self, service: Service, now: float, taken: Mapping[str, int]) -> ServiceView:
        """`taken`: jobs of other brokers that run here, by service."""
        sampler = self._sources.sampler
        census = sampler.census
        rates = sampler.rates(service)
        paused_at = service.paused_at
        view = ServiceView(
            name=service.name,
            paused=service.paused,
            paused_by=service.paused_by,
            paused_at=None if paused_at is None else moment(paused_at + self._sources.offset()),
            waiting=service.queue.length,
            delayed=service.delayed,
            dependent=service.dependent,
            running=service.running,
            oldest=oldest(service, now),
            workers=service.workers,
            idle=len(service.idle) + len(service.held_back),
            ended={outcome.value: count for outcome, count in service.ended.items() if count},
            slots=census.slots.get(service, 0),
            arrived=rates.arrived,
            done=rates.done,
            undone=rates.undone,
            wait=rounded(rates.wait),
            run=rounded(rates.run),
            dialects=sorted(census.dialects.get(service, ())),
            need=sampler.need(service, now),
            limits=limits_view(service, now),
        )
        if (cluster := self.cluster) is not None:
            ended = cluster.ended(service.name)
            leave_out_others(view, service, census.remote.get(service, 0), taken.get(service.name, 0), ended)
        return view

    def marks(self, principal: Principal, since: float, service: str | None = None) -> list[MarkView]:
        """Return the latest changes since a time as marks of a chart, oldest first."""
        offset = self._sources.offset()
        changes = [
            each
            for each in _visible(self._sources.changes.since(since), principal)
            if service is None or each.services is None or service in each.services
        ]
        marks = [MarkView(at=moment(each.at + offset), text=each.text) for each in changes[-MOST_MARKS:]]
        if self.cluster is not None:
            for mark, change in zip(marks, changes[-MOST_MARKS:], strict=True):
                mark.kind = change.kind
        return marks

    # ---------------------------------------------------------------- parts

    def _totals(self) -> TotalsView:
        sources = self._sources
        registry, sampler = sources.broker.job_registry, sources.sampler
        rates, counts = sampler.total_rates(), count_all(sources.broker)
        taken = self.cluster.running(None) if self.cluster is not None else 0
        return TotalsView(
            arrived=rates.arrived,
            done=rates.done,
            undone=sources.load.undone(),
            waiting=counts.waiting,
            delayed=counts.delayed,
            dependent=counts.dependent,
            running=counts.running - taken,
            slots=sampler.census.slots_in_all,
            quarantined=counts.quarantined,
            present=registry.present - taken,
            kept=len(registry.jobs) - registry.present,
            schedules=len(sources.scheduler),
            services=len(sources.broker.worker_registry.services),
            workers=sampler.census.states,
        )

    def _numbers(self, health: HealthView) -> BrokerNumbersView:
        load = self._sources.load
        return BrokerNumbersView(
            cpu=round(load.cpu, 4),
            dashboard=round(load.dashboard, 5),
            lag_p99=rounded([load.lag_p99])[0],
            commit_p99=rounded([load.commit_p99])[0],
            resident=self._sources.resident(),
            peers=health.peers or 0,
        )

    def _own_row(
        self, cluster: ClusterFacts, view: SnapshotView, health: HealthView, sees_all: bool
    ) -> SnapshotBrokerView:
        row = SnapshotBrokerView(
            name=cluster.name,
            here=True,
            version=health.version,
            ready=health.ready,
            draining=health.draining,
            problems=view.problems,
            numbers=view.broker,
        )
        totals = view.totals
        if totals is not None:
            row.shards, row.waiting, row.running = cluster.shards(), totals.waiting, totals.running
            row.workers, row.idle = sum(totals.workers.values()), totals.workers.get(IDLE.value, 0)
        return row

    def _visible_attention(self, principal: Principal) -> list[Standing]:
        standing = self._sources.attention.standing
        if may_see_all(principal):
            return standing
        return [
            each
            for each in standing
            if each.finding.services and all(sees_service(principal, name) for name in each.finding.services)
        ]

    def _attention(self, standing: Standing) -> AttentionView:
        finding = standing.finding
        return AttentionView(
            kind=finding.kind,
            level=finding.level,
            about=finding.about,
            text=finding.text,
            since=moment(standing.since + self._sources.offset()),
            advice=finding.advice,
        )

    def _change(self, change: Change) -> ChangeView:
        return ChangeView(
            at=moment(change.at + self._sources.offset()),
            kind=change.kind,
            service=change.service,
            count=change.count,
            text=change.text,
            level=change.level,
        )


def _visible(changes: Iterable[Change], principal: Principal) -> list[Change]:
    """Return the changes that a principal may see: all, or those of which it may see every service."""
    if may_see_all(principal):
        return list(changes)
    return [each for each in changes if each.services and all(sees_service(principal, name) for name in each.services)]
