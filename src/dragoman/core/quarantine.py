"""Jobs in quarantine, grouped by cause: the same service, outcome and reason, apart from numbers and names in it.

The parts of a group that belong to different principals are separate, because a principal may see only its own jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Final

from dragoman.core.general_reasons import generalize
from dragoman.core.model import Job, JobId
from dragoman.core.states import Outcome

MAX_PARTS: Final = 1_000  # parts of groups; jobs of further ones are only counted
ID_BYTES: Final = 8  # size of a group's id


class GroupPart:
    """Quarantined jobs of one group and one principal, in the order in which they came in."""

    __slots__ = ("dialects", "group", "jobs", "outcome", "owner", "reason", "service")

    def __init__(self, group: str, service: str, outcome: Outcome, reason: str, owner: str) -> None:
        self.group = group
        self.service = service
        self.outcome = outcome
        self.reason = reason  # with gaps
        self.owner = owner  # name of the principal
        self.jobs: dict[JobId, Job] = {}
        self.dialects: dict[str, None] = {}  # of the workers of the last attempts, as far as known

    @property
    def first(self) -> Job:
        return next(iter(self.jobs.values()))

    @property
    def last(self) -> Job:
        return next(reversed(self.jobs.values()))


class Quarantine:
    """Groups of quarantined jobs. A job enters once and leaves once."""

    __slots__ = ("_parts", "_places", "max_parts", "read_group", "ungrouped")

    def __init__(self) -> None:
        self.max_parts = MAX_PARTS
        self.ungrouped = 0  # jobs that came while there were too many parts
        self._parts: dict[tuple[str, str], GroupPart] = {}  # by group and principal
        self._places: dict[JobId, tuple[str, str]] = {}  # of the jobs in parts
        self.read_group: Callable[[str], str] = _unchanged  # taps the id of a group, which depends on a hidden text

    def add(self, job: Job) -> None:
        assert job.outcome is not None
        reason = generalize(job.reason)
        group = self.read_group(group_id(job.service.name, job.outcome, reason))
        place = (group, job.principal.name)
        part = self._parts.get(place)
        if part is None:
            if len(self._parts) >= self.max_parts:
                self.ungrouped += 1
                return
            part = GroupPart(place[0], job.service.name, job.outcome, reason, place[1])
            self._parts[place] = part
        part.jobs[job.id] = job
        self._places[job.id] = place
        if job.history and job.history[-1].dialect:
            part.dialects[job.history[-1].dialect] = None

    def remove(self, job: Job) -> None:
        place = self._places.pop(job.id, None)
        if place is None:
            self.ungrouped -= 1
            return
        part = self._parts[place]
        del part.jobs[job.id]
        if not part.jobs:
            del self._parts[place]

    def parts(self) -> Iterator[GroupPart]:
        """Yield all parts of all groups, oldest first."""
        yield from self._parts.values()

    def parts_of(self, group: str) -> list[GroupPart]:
        """Return the parts of one group; none if there is no such group."""
        return [part for part in self._parts.values() if part.group == group]


def _unchanged(group: str) -> str:
    return group


def group_id(service: str, outcome: Outcome, reason: str) -> str:
    """Return the id of a group as hexadecimal digits. It is the same after a restart."""
    text = "\0".join((service, outcome, reason))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=ID_BYTES).hexdigest()
