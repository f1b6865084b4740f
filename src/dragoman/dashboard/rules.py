"""Rules of attention: a pure function from the facts of one moment to findings, each with a sentence and an advice.

The advice is that of the table of symptoms in docs/operate.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from dragoman.dashboard.attention import Finding
from dragoman.dashboard.facts import Facts, ServiceFacts, WorkerFacts
from dragoman.dashboard.phrases import count_of, joined, percent, rate, seconds
from dragoman.operations.dashboard_schemas import AboutView, Level

BACKLOG: Final = 5.0  # seconds that the oldest job of a backlog has waited at least
MANY_TIMES: Final = 5.0  # an unusual value is this multiple of the usual one
UNDONE_SHARE: Final = 0.01
FEWEST_UNDONE: Final = 3  # jobs in the last minute
LIMIT_SHARE: Final = 0.8
LAG: Final = 0.1  # seconds
BAD_MESSAGES: Final = 10  # in a minute
MOST_BROKERS: Final = 5  # names in a sentence
SKIPPED: Final = 3  # runs of a schedule in a row
NESTED_ADVICE: Final = (
    "Give the workers more slots, start another worker, or let handlers enqueue jobs instead of calling."
)
STEADY: Final = 0.05  # share of the arriving jobs by which a queue may change and be called steady


def findings(facts: Facts) -> list[Finding]:
    """Return the findings about one moment."""
    return [finding for rule in RULES for finding in rule(facts)]


# ---------------------------------------------------------------- the broker


def _store(facts: Facts) -> Iterator[Finding]:
    if facts.store_problem is not None:
        yield Finding(
            "store",
            "error",
            AboutView(),
            f"The store cannot write: {facts.store_problem}. Background jobs are refused.",
            "Free disk space, or raise max_store_size; the broker recovers by itself.",
        )


def _not_ready(facts: Facts) -> Iterator[Finding]:
    if facts.problems and facts.store_problem is None:
        yield Finding(
            "not ready",
            "error",
            AboutView(),
            f"The broker accepts no new jobs: {'; '.join(facts.problems)}.",
            "Remove this cause; draining ends within drain_timeout.",
        )


def _degraded(facts: Facts) -> Iterator[Finding]:
    if facts.degraded:
        yield Finding(
            "shard unusable",
            "error",
            AboutView(),
            f"Background jobs of some shards do not run: {'; '.join(facts.degraded)}.",
            "Other shards continue. Do what the sentence says; docs/cluster.md, A damaged log, has the commands.",
        )


def _replicas(facts: Facts) -> Iterator[Finding]:
    if facts.replicas:
        yield Finding(
            "replicas away",
            "warning",
            AboutView(),
            f"Logs of background jobs have too few copies: {facts.replicas}.",
            "Start the NATS servers that are away; if one more fails, background jobs are refused.",
        )


def _unheard(facts: Facts) -> Iterator[Finding]:
    if facts.unheard:
        names, more = ", ".join(facts.unheard[:MOST_BROKERS]), len(facts.unheard) - MOST_BROKERS
        which = f"{names} and {count_of(more, 'more broker')}" if more > 0 else names
        yield Finding(
            "broker silent",
            "error",
            AboutView(),
            f"Not heard: {which}. Jobs and workers there are not shown, and no job is sent there.",
            "Check that the broker runs, and that it reaches NATS.",
        )


def _limits(facts: Facts) -> Iterator[Finding]:
    for limit in facts.limits:
        if limit.of and limit.used > LIMIT_SHARE * limit.of:
            yield Finding(
                "limit",
                "error" if limit.used >= limit.of else "warning",
                AboutView(),
                f"{limit.name} is used to {percent(limit.used / limit.of)}: {limit.used:,} of {limit.of:,}.",
                f"Add workers, or raise {limit.name} if there is room.",
                subject=limit.name,
                weight=limit.used / limit.of,
            )


def _lag(facts: Facts) -> Iterator[Finding]:
    if facts.lag_p99 is not None and facts.lag_p99 > LAG:
        yield Finding(
            "lag",
            "warning",
            AboutView(),
            f"The broker is late: 1 % of its timed iterations start {seconds(facts.lag_p99)} late or more.",
            "Give the broker a CPU of its own, use the compiled build, submit fewer and larger jobs; strict must be "
            "off.",
        )


def _bad_messages(facts: Facts) -> Iterator[Finding]:
    for dialect, count in facts.bad_messages.items():
        if count >= BAD_MESSAGES:
            yield Finding(
                "bad messages",
                "warning",
                AboutView(),
                f"{count:,} messages of the last minute violate the dialect {dialect}.",
                "Find the worker or client whose dialect or edition is not its listener's; `bad message` in the log "
                "has its connection.",
                subject=dialect,
                weight=count,
            )


# ---------------------------------------------------------------- services


def _no_worker(facts: Facts) -> Iterator[Finding]:
    for service in facts.services:
        if service.waiting and not service.workers and not service.is_paused:
            yield _about(
                service,
                "no worker",
                "error",
                f"{_jobs(service)} of '{service.name}' {_wait(service)}: no worker offers the service.",
                "Start workers; cancel jobs that no worker will ever run, or purge the service.",
            )


def _paused(facts: Facts) -> Iterator[Finding]:
    for service in facts.services:
        if service.waiting and service.is_paused:
            by = f" by {service.paused_by}" if service.paused_by else ""
            since = service.paused_for
            paused = "is paused" if since is None else f"has been paused for {seconds(since)}"
            yield _about(
                service,
                "paused",
                "warning",
                f"{_jobs(service)} of '{service.name}' {_wait(service)}: the service {paused}{by}.",
                "Resume the service when its jobs may run again.",
            )


def _nested(facts: Facts) -> Iterator[Finding]:
    for starving in facts.starving:
        services = tuple(dict.fromkeys((starving.service, *starving.services)))
        slots = f"all {starving.slots:,} slots" if starving.slots > 1 else "the only slot"
        run = "run jobs" if starving.slots > 1 else "runs a job"
        yield Finding(
            "nested",
            "error",
            AboutView(service=starving.service),
            f"{count_of(starving.waiting, 'job')} of '{starving.service}' will not start: {slots} of the workers {run} "
            f"whose handler waits for jobs of {joined(starving.services)}, which only these workers offer.",
            NESTED_ADVICE,
            services,
            weight=starving.waiting,
        )


def _backlog(facts: Facts) -> Iterator[Finding]:
    starving = [each.service for each in facts.starving]
    for service in facts.services:
        if service.name in starving:  # `_nested` has said why
            continue
        usual = service.usual_wait or 0.0
        is_late = service.oldest > BACKLOG and service.oldest > MANY_TIMES * usual
        if service.waiting and is_late and service.workers and not service.is_paused and not service.is_limited:
            yield _about(
                service,
                "backlog",
                "warning",
                f"{_jobs(service)} of '{service.name}' {_wait(service)}, the oldest for {seconds(service.oldest)}: "
                f"{_occupied(service)}, and {_trend(service)}.",
                "Add workers, or find out why jobs have become slow.",
            )


def _undone(facts: Facts) -> Iterator[Finding]:
    for service in facts.services:
        share = service.failed / (service.done + service.failed) if service.failed else 0.0
        is_unusual = share > UNDONE_SHARE and share > MANY_TIMES * service.usual_share
        if is_unusual and service.failed >= FEWEST_UNDONE:
            usual = f" (in the last hour {percent(service.usual_share)})" if service.usual_share else ""
            yield _about(
                service,
                "undone",
                "warning",
                f"{percent(share)} of the jobs of '{service.name}' failed, timed out or were lost in the last "
                f"minute{usual}.",
                "Read the reasons of these jobs; check workers that left, and compare run times with job_timeout.",
                weight=share,
            )


def _full_queue(facts: Facts) -> Iterator[Finding]:
    for service in facts.services:
        most = service.most_waiting
        if most and service.waiting > LIMIT_SHARE * most:
            yield _about(
                service,
                "full queue",
                "error" if service.waiting >= most else "warning",
                f"The queue of '{service.name}' is filled to {percent(service.waiting / most)}: {service.waiting:,} of "
                f"{most:,} jobs.",
                "Add workers, or raise max_jobs_per_service if there is memory.",
            )


def _quarantined(facts: Facts) -> Iterator[Finding]:
    for group in facts.quarantined:
        yield Finding(
            "quarantined",
            "warning",
            AboutView(service=group.service),
            f"{count_of(group.count, 'job')} of '{group.service}' went into quarantine in the last 10 minutes.",
            "Fix the cause, then retry the jobs.",
            (group.service,),
            weight=group.count,
        )


# ---------------------------------------------------------------- workers and schedules


def _silent(facts: Facts) -> Iterator[Finding]:
    yield from _workers(
        facts,
        facts.silent,
        "silent",
        lambda each: f"has been silent for {seconds(each.seconds)} of its lease of {seconds(each.lease)}",
        "have been silent for most of their leases",
        "Check whether these workers still run; without a heartbeat they are removed, and their jobs are lost.",
    )


def _detached(facts: Facts) -> Iterator[Finding]:
    yield from _workers(
        facts,
        facts.detached,
        "detached",
        lambda each: f"has been unreachable for {seconds(each.seconds)}",
        "are unreachable",
        "Check the network and whether these workers still run; their jobs are lost when their leases end.",
    )


def _stuck(facts: Facts) -> Iterator[Finding]:
    yield from _workers(
        facts,
        facts.stuck,
        "stuck",
        lambda each: f"has been stuck for {seconds(each.seconds)} in an attempt that has ended",
        "have been stuck for over a minute in attempts that have ended",
        "Set a longer job_timeout if these jobs end by themselves, else restart the workers.",
    )


def _workers(
    facts: Facts,
    workers: list[WorkerFacts],
    kind: str,
    sentence: Callable[[WorkerFacts], str],
    plural: str,
    advice: str,
) -> Iterator[Finding]:
    """Yield one finding about all workers of a kind: one with its name, or their number."""
    if not workers:
        return
    count = max(facts.counts.get(kind, 0), len(workers))
    services = tuple(dict.fromkeys(name for each in workers for name in each.services))
    if count == 1:
        worker = workers[0]
        name = f"{worker.id} ({worker.name})" if worker.name else str(worker.id)
        held = f" and holds {count_of(worker.held, 'job')}" if worker.held else ""
        text = f"Worker {name} {sentence(worker)}{held}."
        yield Finding(kind, "warning", AboutView(worker=worker.id), text, advice, services, weight=worker.held)
    else:
        text = f"{count:,} workers of {joined(services)} {plural}."
        yield Finding(kind, "warning", AboutView(), text, advice, services, weight=count)


def _rejoining(facts: Facts) -> Iterator[Finding]:
    for name, count in facts.rejoining.items():
        yield Finding(
            "rejoining",
            "warning",
            AboutView(),
            f"Worker '{name}' joined again {count} times in 5 minutes.",
            "Read its log: it crashes, is restarted, or loses its connection.",
            subject=name,
            weight=count,
        )


def _schedules(facts: Facts) -> Iterator[Finding]:
    for schedule in facts.schedules:
        if schedule.skipped >= SKIPPED:
            yield Finding(
                "skipped",
                "warning",
                AboutView(schedule=schedule.name),
                f"The last {schedule.skipped} runs of schedule '{schedule.name}' were skipped.",
                "Check whether its last job still runs; add workers, or let runs overlap.",
                (schedule.service,),
            )


def _schedules_ahead(facts: Facts) -> Iterator[Finding]:
    for schedule in facts.schedules:
        if schedule.ahead > 0.0:
            made = f"has made runs for times up to {seconds(schedule.ahead)} from now"
            waits = f"{made}, and makes no other for {seconds(schedule.waits)}"
            yield Finding(
                "schedule ahead",
                "warning",
                AboutView(schedule=schedule.name),
                f"Schedule '{schedule.name}' {waits}.",
                "Check the wall clock, which was set back; to have runs now, delete the schedule and create it again.",
                (schedule.service,),
            )


# ---------------------------------------------------------------- helpers


def _about(service: ServiceFacts, kind: str, level: Level, text: str, advice: str, weight: float = 0.0) -> Finding:
    about = AboutView(service=service.name)
    return Finding(kind, level, about, text, advice, (service.name,), weight=weight or service.waiting)


def _jobs(service: ServiceFacts) -> str:
    return count_of(service.waiting, "job")


def _wait(service: ServiceFacts) -> str:
    return "waits" if service.waiting == 1 else "wait"


def _occupied(service: ServiceFacts) -> str:
    if service.idle:
        return f"{service.idle:,} of {count_of(service.workers, 'worker')} {'is' if service.idle == 1 else 'are'} free"
    if service.busy >= service.workers:
        return "its only worker is busy" if service.workers == 1 else f"all {service.workers:,} workers are busy"
    if service.workers == 1:
        return "its only worker is not free"
    return f"none of {service.workers:,} workers is free"


def _trend(service: ServiceFacts) -> str:
    growth = service.arrived - service.ended
    if not service.ended:
        return "no job ends"
    if abs(growth) <= max(STEADY * service.arrived, 0.05):
        return "as many jobs arrive as end"
    if growth > 0:
        return f"the queue grows by {rate(growth)} a second"
    return f"the queue shrinks by {rate(-growth)} a second"


Rule = Callable[[Facts], Iterator[Finding]]
RULES: Final[tuple[Rule, ...]] = (
    _store,
    _not_ready,
    _degraded,
    _replicas,
    _unheard,
    _no_worker,
    _paused,
    _nested,
    _backlog,
    _undone,
    _full_queue,
    _silent,
    _detached,
    _stuck,
    _rejoining,
    _quarantined,
    _limits,
    _lag,
    _bad_messages,
    _schedules,
    _schedules_ahead,
)
