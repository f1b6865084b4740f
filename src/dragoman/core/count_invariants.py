"""Invariants of the counts that views read: jobs by state, kept outcomes, and groups of the quarantine (I1)."""

from __future__ import annotations

from dragoman.core.broker import Broker
from dragoman.core.errors import broken
from dragoman.core.job_counts import JobCounts, count_all, count_of
from dragoman.core.model import Job, JobId
from dragoman.core.states import DELAYED, DONE, ENDED, RUNNING, WAITING


def check_counts(broker: Broker) -> None:
    """Raise InvariantBroken if a count differs from the jobs that are there."""
    found: dict[str, JobCounts] = {}
    total = _none()
    quarantined: dict[JobId, Job] = {}
    for job in broker.jobs.values():
        name = job.service.name
        counts = found.get(name)
        if counts is None:
            counts = found[name] = _none()
        _add(counts, job)
        _add(total, job)
        if job.quarantined:
            quarantined[job.id] = job
    for name in broker.worker_registry.services:
        if name not in found:
            found[name] = _none()
    for name, counts in found.items():
        _compare(f"service {name}", counts, count_of(broker, name))
    _compare("all services", total, count_all(broker))
    if len(broker.job_registry.kept.counts.by_service) > len(found):
        raise broken("I5", "outcomes are counted for a service that has none")
    _check_quarantine(broker, quarantined)


def _none() -> JobCounts:
    return JobCounts(0, 0, 0, 0, 0, 0)


def _add(counts: JobCounts, job: Job) -> None:
    state = job.state
    if state is RUNNING:
        counts.running += 1
    elif state is WAITING:
        counts.waiting += 1
    elif state is DELAYED:
        counts.delayed += 1
    elif job.outcome is DONE:
        counts.done += 1
    else:
        counts.undone += 1
    if job.quarantined and state is ENDED:
        counts.quarantined += 1


def _compare(subject: str, found: JobCounts, counted: JobCounts) -> None:
    if found.numbers() != counted.numbers():
        raise broken("I1", f"{subject}: jobs by state are {found.numbers()}, {counted.numbers()} are counted")


def _check_quarantine(broker: Broker, quarantined: dict[JobId, Job]) -> None:
    quarantine = broker.job_registry.kept.quarantine
    grouped = 0
    for part in quarantine.parts():
        if not part.jobs:
            raise broken("I5", f"group {part.group} of the quarantine has no jobs")
        for id, job in part.jobs.items():
            grouped += 1
            if quarantined.get(id) is not job or job.principal.name != part.owner:
                raise broken("I22", f"job {id.hex()} is in group {part.group}, and not in quarantine")
    if grouped + quarantine.ungrouped != len(quarantined):
        raise broken("I22", f"{len(quarantined)} jobs are in quarantine, {grouped + quarantine.ungrouped} are counted")
