"""Invariants of dependent jobs (I25): each waits for what it names, and nothing else is pinned. And of groups (I26)."""

from __future__ import annotations

from dragoman.core.broker import Broker
from dragoman.core.errors import broken
from dragoman.core.groups import OUTCOMES, PRESENT
from dragoman.core.job_links import DependentJob
from dragoman.core.model import JobId
from dragoman.core.states import DEPENDENT, DONE, ENDED


def check_links(broker: Broker) -> None:
    """Raise InvariantBroken if the links between jobs differ from the jobs that are there."""
    links = broker.job_registry.links
    dependent = [job for job in broker.jobs.values() if job.state is DEPENDENT]
    if not dependent and not links.dependent and not links.links and not links.watched:
        return
    pins: dict[JobId, int] = {id: len(shards) for id, shards in links.watched.items()}
    count = 0
    for job in dependent:
        entry = links.dependent.get(job.id)
        if entry is None or entry.job is not job:
            raise broken("I25", f"job {job.id.hex()} is dependent, and waits for nothing")
        if job.extras is None or job.extras.is_ready or entry.predecessors != tuple(dict.fromkeys(job.extras.after)):
            raise broken("I25", f"job {job.id.hex()} waits for other jobs than it names")
        if entry.unended != _unended(broker, entry):
            raise broken("I25", f"job {job.id.hex()} waits for {_unended(broker, entry)} jobs, {entry.unended} counted")
        if not entry.unended and not entry.is_collecting and job.queue_due > job.alarm:
            raise broken("I25", f"job {job.id.hex()} waits for nothing, and is not decided")
        for id in entry.predecessors:
            count += 1
            if id in entry.foreign:
                continue
            pins[id] = pins.get(id, 0) + 1
            if all(each is not entry for each in links.followers(id)):
                raise broken("I25", f"job {job.id.hex()} does not follow job {id.hex()}")
    if len(links.dependent) != len(dependent) or links.links != count:
        raise broken("I25", f"{len(dependent)} jobs are dependent with {count} links, {links.links} are counted")
    if broker.job_registry.kept.archive.pins != pins:
        raise broken("I25", "outcomes are pinned that no job waits for")


def _unended(broker: Broker, entry: DependentJob) -> int:
    count = 0
    for id in entry.predecessors:
        if id in entry.foreign:
            count += not entry.foreign[id]
            continue
        job = broker.jobs.get(id)
        group = broker.job_registry.groups.by_id.get(id)
        count += (job is not None and job.state is not ENDED) or (group is not None and not group.is_complete)
    return count


def check_groups(broker: Broker) -> None:
    """Raise InvariantBroken if a group counts otherwise than its members are."""
    for group in broker.job_registry.groups.by_id.values():
        done = undone = 0
        for place, job in enumerate(group.jobs):
            if job is not None and (broker.jobs.get(job.id) is not job or group.gone[place] != PRESENT):
                raise broken("I26", f"group {group.id.hex()} has a member that does not exist, at {place}")
            outcome = job.outcome if job is not None else OUTCOMES.get(group.gone[place])
            is_unknown = job is None and group.gone[place] not in OUTCOMES and group.gone[place] != PRESENT
            done += outcome is DONE
            undone += is_unknown or (outcome is not None and outcome is not DONE)
        counted = (group.open, group.done, group.undone)
        if counted != (group.size - done - undone, done, undone):
            found = (group.size - done - undone, done, undone)
            raise broken("I26", f"group {group.id.hex()} has {found} open, done and undone jobs, counted {counted}")
        if group.is_complete and not broker.job_registry.is_loading and group.alarm > group.keep_until:
            raise broken("I26", f"group {group.id.hex()} is complete and has no timer")
