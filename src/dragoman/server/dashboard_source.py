"""Makes the dashboard of a server from the parts of its broker."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from dragoman.core.starvation import Starvation
from dragoman.dashboard.attention import Attention
from dragoman.dashboard.changes import Changes
from dragoman.dashboard.dashboard import Dashboard
from dragoman.dashboard.facts import LimitFacts
from dragoman.dashboard.load import Load
from dragoman.dashboard.quarantine_growth import QuarantineGrowth
from dragoman.dashboard.sampler import Sampler
from dragoman.dashboard.snapshot import Sources
from dragoman.dashboard.starvation_watch import StarvationWatch
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.schemas import HealthView
from dragoman.server.clock import random_bytes
from dragoman.server.reports import Reports
from dragoman.server.runner import Runner

MEMORY = Path("/proc/self/statm")


def make_dashboard(
    runner: Runner,
    operations: OperationHandlers,
    health: Callable[[], HealthView],
    offset: Callable[[], float],
    now: Callable[[], float],
    max_connections: int = 0,
) -> Dashboard:
    """Return the dashboard, and let operations use it. `offset`: seconds that the wall clock is ahead of `now`.
    `max_connections`: 0: no limit is known."""
    broker, store, registry = runner.broker, operations.store, runner.connections.registry
    changes = Changes()
    sources = Sources(
        broker=broker,
        sampler=Sampler(broker, now()),
        load=Load(broker.counters, runner.lag, lambda: store.commits, time.process_time, now()),
        changes=changes,
        attention=Attention(),
        quarantine=QuarantineGrowth(broker.job_registry.kept.counts, changes),
        health=health,
        offset=offset,
        scheduler=operations.scheduler,
        problem=lambda: store.problem,
        limits=lambda: [LimitFacts(name="max_connections", used=len(registry.peers), of=max_connections)],
        resident=_resident,
        instance=random_bytes(8).hex(),
        listeners=operations.listeners,
        starvation=StarvationWatch(broker, partial(_log_starvation, runner.reports)),
    )
    dashboard = Dashboard(sources, now, runner.reports.internal_error)
    operations.dashboard = dashboard
    operations.rates = sources.sampler.service_rates
    operations.bulk_acts.when_retried = changes.jobs_retried
    return dashboard


def _log_starvation(reports: Reports, found: Starvation) -> None:
    reports.remark(
        "service starved",
        level="warning",
        service=found.service.name,
        waiting=found.service.queue.length,
        slots=found.slots,
        wait_for=", ".join(each.name for each in found.services),
        advice="the handlers in all slots wait for jobs of the same workers: give these more slots, start another "
        "worker, or let handlers enqueue jobs instead of calling",
    )


def _resident() -> int | None:
    """Return the memory in use, in bytes; None where the system does not tell."""
    try:
        return int(MEMORY.read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return None
