"""Collects all metrics of the broker, a few milliseconds at a time, so that jobs pass meanwhile."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Iterable, Mapping
from time import perf_counter
from typing import Any, Protocol

from dragoman.core.broker import Broker
from dragoman.core.histogram import Histogram
from dragoman.core.model import Service
from dragoman.http.exposition import MetricType, head, histogram, labels, sample
from dragoman.http.labels import OTHER, ServiceLabels, Tally, waiting_of_owners
from dragoman.http.process_metrics import process_numbers
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.schemas import HealthView

SLICE = 0.005  # seconds of work between two iterations of the event loop

# Metrics of each service, with the attribute of a tally.
GAUGES = {
    "dragoman_queue_depth": "waiting",
    "dragoman_queue_oldest_seconds": "oldest",
    "dragoman_queue_limited": "limited",
    "dragoman_jobs_delayed": "delayed",
    "dragoman_jobs_dependent": "dependent",
    "dragoman_jobs_running": "running",
}
HISTOGRAMS = {"dragoman_queue_seconds": "waited", "dragoman_run_seconds": "ran"}


class MetricsContext(Protocol):
    """The parts of a broker that have metrics."""

    @property
    def broker(self) -> Broker: ...

    @property
    def operations(self) -> OperationHandlers: ...

    @property
    def runner(self) -> Any: ...

    @property
    def labels(self) -> ServiceLabels: ...

    @property
    def now(self) -> Callable[[], float]: ...

    @property
    def health(self) -> Callable[[], HealthView]: ...

    @property
    def traffic(self) -> Callable[[], tuple[int, int]]: ...

    @property
    def certificates(self) -> Callable[[], list[tuple[str, float]]]: ...


class MetricsSnapshot:
    """Used once. Each part of the text is from one moment; the parts are from moments close together."""

    def __init__(
        self,
        context: MetricsContext,
        metrics: Mapping[str, tuple[MetricType, str]],
        is_openmetrics: bool,
        broker: str = "",
    ) -> None:
        """`broker`: a label of all samples; empty: they have none."""
        self._context = context
        self._broker_label = labels(broker=broker) if broker else ""
        self._broker = context.broker
        self._metrics = metrics
        self._is_openmetrics = is_openmetrics
        self._lines: list[str] = []
        self._own: dict[Service, str] = {}  # services with their own series, and their labels
        self._others = Tally()
        self._running: dict[Service, int] = {}
        self._workers: dict[tuple[str, str, str], int] = {}
        self._peers: dict[str, int] = {}
        self._traffic: dict[str, tuple[int, int]] = {}
        self._yielded_at = perf_counter()

    async def text(self, counters: Mapping[str, tuple[str, str]], cluster: Iterable[str] = ()) -> bytes:
        """Return the text. `counters` are attributes of the broker's counters, with their metrics; `cluster`: the
        metrics of a cluster."""
        await self._collect_workers()
        await self._collect_connections()
        await self._collect_services()
        self._write_broker()
        await self._write_services()
        self._write_owners()
        await self._write_workers()
        self._write_peers()
        self._write_counters(counters)
        self._write_cluster(cluster)
        for name, value in process_numbers():
            self._write(name, value)
        if self._is_openmetrics:
            self._lines.append("# EOF\n")
        return "".join(self._lines).encode()

    # ---------------------------------------------------------------- collecting

    async def _collect_workers(self) -> None:
        self._own = own = self._context.labels.choose(self._broker.worker_registry.services)
        for worker in list(self._broker.worker_registry.workers.values()):
            for attempt in worker.running.values():
                service = attempt.job.service
                self._running[service] = self._running.get(service, 0) + 1
            dialect = _dialect_of(worker.recipient)
            for name in dict.fromkeys(own.get(service, OTHER) for service in worker.services):
                key = name, dialect, worker.state.value
                self._workers[key] = self._workers.get(key, 0) + 1
            await self._yield_to_loop()

    async def _collect_connections(self) -> None:
        registry = self._context.runner.connections.registry
        traffic, present = {"http": self._context.traffic()}, list(registry.peers)
        for session, (received, sent) in registry.traffic.items():
            dialect = _dialect_of(session)
            before = traffic.get(dialect, (0, 0))
            traffic[dialect] = before[0] + received, before[1] + sent
        # HTTP connections do not belong to the runner; the health view counts all.
        self._peers["http"] = max(0, (self._context.health().peers or 0) - len(present))
        for peer in present:
            dialect = _dialect_of(peer.session)
            self._peers[dialect] = self._peers.get(dialect, 0) + 1
            if peer.stream is not None:
                received, sent = traffic.get(dialect, (0, 0))
                traffic[dialect] = received + peer.stream.wire_received, sent + peer.stream.wire_sent
            await self._yield_to_loop()
        self._traffic = traffic

    async def _collect_services(self) -> None:
        """Sum up the services without their own series."""
        for service in list(self._broker.worker_registry.services.values()):
            if service not in self._own:
                self._others.add(service, self._running.get(service, 0), self._context.now())
                await self._yield_to_loop()
        self._context.labels.others(self._others)

    # ---------------------------------------------------------------- writing

    def _write_broker(self) -> None:
        job_registry, store = self._broker.job_registry, self._context.operations.store
        health = self._context.health()
        self._write("dragoman_build_info", 1, labels(version=health.version, python=platform.python_version()))
        self._write("dragoman_ready", int(health.ready))
        self._begin("dragoman_certificate_expiry_seconds")
        for listener, expiry in self._context.certificates():
            self._sample("dragoman_certificate_expiry_seconds", labels(listener=listener), expiry)
        self._write("dragoman_jobs_present", job_registry.present)
        self._write("dragoman_groups", len(job_registry.groups.by_id))
        self._write("dragoman_payload_bytes", job_registry.memory.payloads)
        self._begin("dragoman_transit_bytes")
        for kind, size in job_registry.memory.transit.items():
            self._sample("dragoman_transit_bytes", labels(kind=kind.value), size)
        self._write("dragoman_outcomes_kept", len(job_registry.jobs) - job_registry.present)
        self._write("dragoman_jobs_kept_forever", job_registry.kept.forever)
        self._write("dragoman_store_unavailable", int(store.problem is not None))
        self._begin("dragoman_store_commit_seconds")
        self._histogram("dragoman_store_commit_seconds", "", store.commits)
        self._begin("dragoman_loop_lag_seconds")
        self._histogram("dragoman_loop_lag_seconds", "", self._context.runner.lag)

    def _write_cluster(self, names: Iterable[str]) -> None:
        numbers = self._context.operations.cluster_numbers()
        for name in names:
            self._begin(name)
            for labelled, value in self._with_known_services(numbers.get(name, ())):
                self._sample(name, labelled, value)

    def _with_known_services(self, samples: Iterable[tuple[dict[str, str], float]]) -> Iterable[tuple[str, float]]:
        """Return labels and values. Services without their own series are added up."""
        own = self._own.values()
        sums: dict[str, float] = {}
        for each, value in samples:
            folded = each | {"service": OTHER} if "service" in each and each["service"] not in own else each
            labelled = labels(**folded)
            sums[labelled] = sums.get(labelled, 0) + value
        return sums.items()

    async def _write_services(self) -> None:
        tallies = [(labels(service=OTHER), self._others)]
        for service, name in self._own.items():
            tally = Tally()
            tally.add(service, self._running.get(service, 0), self._context.now())
            tallies.append((labels(service=name), tally))
            await self._yield_to_loop()
        self._begin("dragoman_jobs_total")
        for labelled, tally in tallies:
            for outcome, count in tally.ended.items():
                self._sample("dragoman_jobs_total", f'{labelled},outcome="{outcome.value}"', count)
            await self._yield_to_loop()
        for name, attribute in GAUGES.items():
            self._begin(name)
            for labelled, tally in tallies:
                self._sample(name, labelled, getattr(tally, attribute))
                await self._yield_to_loop()
        for name, attribute in HISTOGRAMS.items():
            self._begin(name)
            for labelled, tally in tallies:
                counted = getattr(tally, attribute)
                if any(counted.counts):  # most of many services have no jobs, and a histogram has many lines
                    self._histogram(name, labelled, counted)
                    await self._yield_to_loop()

    def _write_owners(self) -> None:
        self._begin("dragoman_owner_waiting_jobs")
        for owner, count in waiting_of_owners(self._broker.principals).items():
            self._sample("dragoman_owner_waiting_jobs", labels(owner=owner), count)

    async def _write_workers(self) -> None:
        self._begin("dragoman_workers")
        for (service, dialect, state), count in self._workers.items():
            labelled = labels(service=service, dialect=dialect, state=state)
            self._sample("dragoman_workers", labelled, count)
            await self._yield_to_loop()

    def _write_peers(self) -> None:
        self._begin("dragoman_connections")
        for dialect, count in self._peers.items():
            self._sample("dragoman_connections", labels(dialect=dialect), count)
        handshakes = self._context.runner.connections.registry.handshakes
        self._write("dragoman_handshakes_waiting", handshakes.in_progress)
        self._begin("dragoman_handshakes_total")
        for (mechanism, result), count in handshakes.totals.items():
            self._sample("dragoman_handshakes_total", labels(mechanism=mechanism, result=result), count)
        for index, name in enumerate(("dragoman_received_bytes_total", "dragoman_sent_bytes_total")):
            self._begin(name)
            for dialect, counts in self._traffic.items():
                self._sample(name, labels(dialect=dialect), counts[index])

    def _write_counters(self, counters: Mapping[str, tuple[str, str]]) -> None:
        counted = self._broker.counters
        for attribute, (name, _) in counters.items():
            self._write(name, getattr(counted, attribute))
        self._begin("dragoman_bad_messages_total")
        for (dialect, reason), count in counted.bad_messages.items():
            labelled = labels(dialect=dialect, reason=reason)
            self._sample("dragoman_bad_messages_total", labelled, count)
        self._begin("dragoman_access_reloads_total")
        for result, count in counted.access_reloads.items():
            self._sample("dragoman_access_reloads_total", labels(result=result), count)
        self._begin("dragoman_handshakes_rejected_total")
        for (mechanism, reason), count in counted.peers_refused.items():
            labelled = labels(mechanism=mechanism, reason=reason)
            self._sample("dragoman_handshakes_rejected_total", labelled, count)
        self._begin("dragoman_rights_refused_total")
        for (right, dialect), count in counted.rights_refused.items():
            labelled = labels(right=right, dialect=dialect)
            self._sample("dragoman_rights_refused_total", labelled, count)
        self._begin("dragoman_limits_reached_total")
        for limit, count in counted.limits_reached.items():
            self._sample("dragoman_limits_reached_total", labels(limit=limit), count)
        self._begin("dragoman_unreported_outcomes_total")
        for outcome, count in counted.unreported_outcomes.items():
            self._sample("dragoman_unreported_outcomes_total", labels(outcome=outcome), count)

    # ---------------------------------------------------------------- helpers

    def _begin(self, name: str) -> None:
        kind, meaning = self._metrics[name]
        self._lines.append(head(name, kind, meaning, self._is_openmetrics))

    def _sample(self, name: str, labelled: str, value: float) -> None:
        self._lines.append(sample(name, self._labels(labelled), value))

    def _histogram(self, name: str, labelled: str, counted: Histogram) -> None:
        self._lines.append(histogram(name, self._labels(labelled), counted))

    def _labels(self, labelled: str) -> str:
        """Add the label of the broker, if all samples have it."""
        if not self._broker_label:
            return labelled
        return f"{self._broker_label},{labelled}" if labelled else self._broker_label

    def _write(self, name: str, value: float, labelled: str = "") -> None:
        self._begin(name)
        self._sample(name, labelled, value)

    async def _yield_to_loop(self) -> None:
        """Yield to the event loop, if this slice has been long."""
        if perf_counter() - self._yielded_at > SLICE:
            await asyncio.sleep(0)
            self._yielded_at = perf_counter()


def _dialect_of(session: Any) -> str:
    return getattr(session, "dialect", "?")
