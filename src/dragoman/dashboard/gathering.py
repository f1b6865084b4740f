"""Gathers the facts of one moment from the last sample."""

from __future__ import annotations

from itertools import islice
from statistics import median
from typing import Final

from dragoman.core.leases import lease_of, stuck_since
from dragoman.core.model import Service, Worker
from dragoman.core.reached_limits import limit_of_queue
from dragoman.core.starvation import Starvation
from dragoman.core.states import BUSY, DETACHED, STUCK
from dragoman.dashboard.census import MOST_SUSPECTS, SILENT_SHARE
from dragoman.dashboard.facts import Facts, LimitFacts, ScheduleFacts, ServiceFacts, StarvingFacts, WorkerFacts
from dragoman.dashboard.history import SLOT
from dragoman.dashboard.rules import BACKLOG, SKIPPED
from dragoman.dashboard.sampler import oldest
from dragoman.dashboard.snapshot import Sources
from dragoman.operations.schedule_runs import SKIPPED as LETTER
from dragoman.operations.scheduler import ScheduleState

MINUTE: Final = 30  # slots
MOST_SCHEDULES: Final = 20


def gather(sources: Sources, now: float) -> Facts:
    """Return the facts of this moment."""
    broker, census, load = sources.broker, sources.sampler.census, sources.load
    policy, registry = broker.policy, broker.job_registry
    memory = registry.memory
    health = sources.health()
    limits = [
        LimitFacts(name="max_jobs", used=registry.present, of=policy.max_jobs),
        LimitFacts(name="max_memory", used=memory.payloads + memory.in_transit, of=memory.limit),
        LimitFacts(name="max_services", used=len(broker.worker_registry.services), of=policy.max_services),
        *sources.limits(),
    ]
    return Facts(
        problems=health.problems,
        degraded=health.degraded,
        replicas=health.replicas,
        store_problem=sources.problem(),
        services=[_service(sources, each, now) for each in sources.sampler.notable],
        silent=[_worker(each, now - each.seen) for each in census.silent if _is_silent(each, now)],
        detached=[_worker(each, now - each.away_since) for each in census.detached if each.state is DETACHED],
        stuck=[_worker(each, now - stuck_since(each)) for each in census.stuck if each.state is STUCK],
        counts={kind: count for kind, count in census.suspects.items() if count > MOST_SUSPECTS},
        rejoining=sources.changes.rejoining(now),
        quarantined=sources.quarantine.recent(now),
        limits=limits,
        lag_p99=load.lag_p99,
        bad_messages=load.bad_messages(),
        schedules=[
            *[_schedule(each) for each in islice(sources.scheduler.skipping(SKIPPED), MOST_SCHEDULES)],
            *[_ahead(*each) for each in islice(sources.scheduler.ahead(now + sources.offset()), MOST_SCHEDULES)],
        ],
        starving=[_starving(each) for each in sources.starvation.search(sources.sampler.notable, now)],
    )


def _service(sources: Sources, service: Service, now: float) -> ServiceFacts:
    sampler = sources.sampler
    history = sampler.histories.get(service.name)
    waited, rates = oldest(service, now), sampler.rates(service)
    usual_wait, done, failed, usual_share = None, 0.0, 0.0, 0.0
    if history is not None and waited > BACKLOG:
        waits = history.series("1h", ("wait50",), sampler.slot)["wait50"]
        usual_wait = _middle([each for each in waits if each is not None])
    share = sampler.failed_share(service)
    if history is not None and share:
        minute = history.series("5m", ("done", "undone"), sampler.slot)
        done, failed = _sum(minute["done"][-MINUTE:]) * SLOT, _sum(minute["undone"][-MINUTE:]) * SLOT * share
        hour = history.series("1h", ("done", "undone"), sampler.slot)
        usual_done, usual_failed = _sum(hour["done"][:-3]), _sum(hour["undone"][:-3])  # without the last minute
        usual_share = usual_failed / (usual_done + usual_failed) if usual_failed else 0.0
    return ServiceFacts(
        name=service.name,
        waiting=service.queue.length,
        oldest=waited,
        most_waiting=sources.broker.policy.max_jobs_per_service,
        workers=service.workers,
        busy=sampler.census.states_of.get(service, {}).get(BUSY.value, 0),
        idle=len(service.idle) + len(service.held_back),
        is_paused=service.paused,
        paused_by=service.paused_by,
        paused_for=None if service.paused_at is None else now - service.paused_at,
        is_limited=limit_of_queue(service, now) is not None,
        arrived=rates.arrived,
        ended=rates.done + rates.undone,
        usual_wait=usual_wait,
        done=done,
        failed=failed,
        usual_share=usual_share,
    )


def _is_silent(worker: Worker, now: float) -> bool:
    """True if the worker still is what the last count found; it may have sent a heartbeat, or have left."""
    return bool(worker.running) and now - worker.seen > SILENT_SHARE * lease_of(worker)


def _worker(worker: Worker, passed: float) -> WorkerFacts:
    return WorkerFacts(
        id=worker.id,
        name=worker.name,
        services=tuple(each.name for each in worker.services),
        held=len(worker.running),
        seconds=passed,
        lease=lease_of(worker),
    )


def _schedule(state: ScheduleState) -> ScheduleFacts:
    letters = state.recent.letters
    skipped = len(letters) - len(letters.rstrip(LETTER))
    return ScheduleFacts(name=state.request.name, service=state.request.service, skipped=skipped)


def _ahead(state: ScheduleState, seconds: float, waits: float) -> ScheduleFacts:
    return ScheduleFacts(name=state.request.name, service=state.request.service, ahead=seconds, waits=waits)


def _starving(found: Starvation) -> StarvingFacts:
    service = found.service
    return StarvingFacts(
        service=service.name,
        waiting=service.queue.length,
        slots=found.slots,
        services=tuple(each.name for each in found.services),
    )


def _middle(values: list[float]) -> float | None:
    return median(values) if values else None


def _sum(values: list[float | None]) -> float:
    return sum(each for each in values if each is not None)
