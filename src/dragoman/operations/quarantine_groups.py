"""Groups of quarantined jobs as a principal sees them: with the jobs that it may see, or may retry."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from dragoman.core.model import Job
from dragoman.core.quarantine import GroupPart, Quarantine
from dragoman.core.rights import ADMINISTER, CALL, SEE, Principal, Right
from dragoman.operations.quarantine_schemas import QuarantineGroupView, QuarantineView
from dragoman.operations.views import moment
from dragoman.operations.visibility import may_see_all


def sees_part(principal: Principal, part: GroupPart) -> bool:
    return principal.rights.sees_all or part.owner == principal.name or principal.may(SEE, part.service)


def may_use(principal: Principal, right: Right, part: GroupPart) -> bool:
    """True if the principal may execute an operation with this right on these jobs: on its own, if it may call the
    service; on those of others as an administrator."""
    if right is SEE:
        return sees_part(principal, part)
    if right is CALL and part.owner == principal.name and principal.may(CALL, part.service):
        return True
    return principal.may(ADMINISTER, part.service)


def quarantine_view(quarantine: Quarantine, principal: Principal, offset: float) -> QuarantineView:
    """Return the groups that the principal may see, the latest first."""
    groups: dict[str, list[GroupPart]] = {}
    for part in quarantine.parts():
        if sees_part(principal, part):
            groups.setdefault(part.group, []).append(part)
    views = [_group_view(parts, offset) for parts in groups.values()]
    views.sort(key=lambda view: view.last.timestamp() if view.last is not None else 0.0, reverse=True)
    return QuarantineView(groups=views, more=quarantine.ungrouped if may_see_all(principal) else 0)


def _group_view(parts: list[GroupPart], offset: float) -> QuarantineGroupView:
    first, last = _earliest(each.first for each in parts), _latest([each.last for each in parts])
    return QuarantineGroupView(
        group=parts[0].group,
        service=parts[0].service,
        outcome=parts[0].outcome.value,
        reason=parts[0].reason,
        count=sum(len(each.jobs) for each in parts),
        first=_moment(first, offset),
        last=_moment(last.ended, offset),
        dialects=sorted({dialect for each in parts for dialect in each.dialects}),
        example=last.id.hex(),
    )


def _earliest(jobs: Iterable[Job]) -> float | None:
    return min((job.ended for job in jobs if job.ended is not None), default=None)


def _latest(jobs: list[Job]) -> Job:
    return max(jobs, key=lambda job: job.ended if job.ended is not None else 0.0)


def _moment(time: float | None, offset: float) -> datetime | None:
    return None if time is None else moment(time + offset)
