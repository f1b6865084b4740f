"""Invariants of what views read: counts of jobs by state, kept outcomes, keys, groups of the quarantine, children.

The number of running jobs follows from the others, and from those that `invariants.py` checks.
"""

from __future__ import annotations

from collections.abc import Iterable

from dragoman.core.archive import FOREVER, SWEEP_FLOOR, keeps_forever
from dragoman.core.broker import Broker
from dragoman.core.errors import broken
from dragoman.core.extras_index import ExtrasIndex
from dragoman.core.job_keys import Place
from dragoman.core.kept_counts import KeptCounts
from dragoman.core.kept_jobs import KeptJobs
from dragoman.core.model import Job, Service
from dragoman.core.quarantine import Quarantine
from dragoman.core.states import DELAYED, DEPENDENT, DONE, ENDED, Unique


def check_counts(broker: Broker) -> None:
    """Raise InvariantBroken if a count differs from the jobs that are there."""
    delayed: dict[Service, int] = {}
    dependent: dict[Service, int] = {}
    ended: list[Job] = []
    with_extras: list[Job] = []
    for job in broker.jobs.values():
        if job.extras is not None:
            with_extras.append(job)
        state = job.state
        if state is ENDED:
            ended.append(job)
        elif state is DELAYED:
            delayed[job.service] = delayed.get(job.service, 0) + 1
        elif state is DEPENDENT:
            dependent[job.service] = dependent.get(job.service, 0) + 1
    waiting = all_delayed = all_dependent = 0
    names = broker.worker_registry.names
    for service in names.services.values():
        waiting += service.queue.length
        all_delayed += service.delayed
        all_dependent += service.dependent
        if service.delayed != delayed.get(service, 0):
            raise broken(
                "I1",
                f"service {service.name}: {delayed.get(service, 0)} jobs are delayed, {service.delayed} are counted",
            )
        if service.dependent != dependent.get(service, 0):
            found = dependent.get(service, 0)
            raise broken("I1", f"service {service.name}: {found} jobs are dependent, {service.dependent} are counted")
    totals = names.totals
    if (totals.waiting, totals.delayed, totals.dependent) != (waiting, all_delayed, all_dependent):
        raise broken(
            "I1",
            f"{waiting} jobs wait, {all_delayed} are delayed and {all_dependent} dependent, {totals.waiting}, "
            f"{totals.delayed} and {totals.dependent} are counted",
        )
    _check_extras(broker.job_registry.with_extras, with_extras)
    kept = broker.job_registry.kept
    _check_keys(kept, broker.jobs.values())
    if ended or kept.counts.by_service:
        _check_kept(kept.counts, ended)
        _check_quarantine(kept.quarantine, ended)


def _check_extras(index: ExtrasIndex, jobs: list[Job]) -> None:
    if index.count != len(jobs):
        raise broken("I1", f"{len(jobs)} jobs have extras, {index.count} are counted")
    children = 0
    for job in jobs:
        extras = job.extras
        if extras is not None and extras.parent is not None:
            children += 1
            if index.children_of(extras.parent).get(job.id) is not job:
                raise broken("I1", f"job {job.id.hex()} is not among the children of its parent")
    if children != sum(map(len, index.by_parent.values())):
        raise broken("I1", f"{children} jobs have a parent, and there are more in the lists of children")


def _check_keys(kept: KeptJobs, jobs: Iterable[Job]) -> None:
    """Check that each key finds the jobs that have it, in the order in which they were submitted."""
    found: dict[Place, list[Job]] = {}
    forever = archived = 0
    for job in jobs:
        if job.key is not None:
            found.setdefault((job.principal.name, job.service.name, job.key), []).append(job)
        forever += keeps_forever(job)
        archived += job.is_archived and job.keep_until != FOREVER
    if forever != kept.forever:
        raise broken("I5", f"{forever} jobs are kept until they are deleted, {kept.forever} are counted")
    if kept.archive.entries > 2 * archived + 2 * SWEEP_FLOOR:
        raise broken("I5", f"{kept.archive.entries} entries for {archived} kept outcomes")
    if len(kept.keys.places()) != len(found):
        raise broken("I23", f"{len(found)} keys are used, and {len(kept.keys.places())} find a job")
    for place, same in found.items():
        if kept.keys.jobs_of(place) != same:
            raise broken("I23", f"key {place[2]!r} does not find the jobs that have it")
        for job in same[:-1]:
            if job.options.unique is Unique.UNFINISHED and job.state is not ENDED:
                raise broken("I23", f"job {job.id.hex()} has not ended, and a later one has its key")


def _check_kept(counts: KeptCounts, ended: list[Job]) -> None:
    found: dict[str, list[int]] = {}
    total = [0, 0, 0]
    for job in ended:
        for numbers in (found.setdefault(job.service.name, [0, 0, 0]), total):
            numbers[0 if job.outcome is DONE else 1] += 1
            numbers[2] += job.quarantined
    counted = {name: [each.done, each.undone, each.quarantined] for name, each in counts.by_service.items()}
    if counted != found:
        raise broken("I1", f"kept outcomes that are done, undone and in quarantine: {found}, {counted} are counted")
    if [counts.total.done, counts.total.undone, counts.total.quarantined] != total:
        raise broken("I1", f"the counts of all kept outcomes are not {total}")


def _check_quarantine(quarantine: Quarantine, ended: list[Job]) -> None:
    quarantined = {job.id: job for job in ended if job.quarantined}
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
