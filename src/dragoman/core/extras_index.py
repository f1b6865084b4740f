"""Index of the registered jobs that have extras: their number, and the children of each parent."""

from __future__ import annotations

from typing import Final

from dragoman.core.job_extras import JobExtras
from dragoman.core.model import Job, JobId, WorkerId

NOBODY: Final = WorkerId(0)  # no worker has this number
NO_CHILDREN: Final[dict[JobId, Job]] = {}


class ExtrasIndex:
    """Jobs that have extras. While `count` is 0, which callers check first, jobs cost nothing here."""

    __slots__ = ("by_parent", "count")

    def __init__(self) -> None:
        self.count = 0  # registered jobs with extras
        self.by_parent: dict[JobId, dict[JobId, Job]] = {}  # registered children, oldest first

    def add(self, job: Job, extras: JobExtras) -> None:
        """Give a registered job its extras."""
        job.extras = extras
        if extras.needs and not job.tried:
            job.tried = (NOBODY,)  # some worker has refused it: `WorkerRegistry.pick` looks at all of them
        self.count += 1
        parent = extras.parent
        if parent is not None:
            self.by_parent.setdefault(parent, {})[job.id] = job

    def remove(self, job: Job) -> None:
        """Forget a job that is not registered any more. It may have no extras."""
        extras = job.extras
        if extras is None:
            return
        self.count -= 1
        parent = extras.parent
        if parent is not None:
            children = self.by_parent[parent]
            del children[job.id]
            if not children:
                del self.by_parent[parent]

    def children_of(self, id: JobId) -> dict[JobId, Job]:
        """Return the registered jobs whose callers named this one as their parent, oldest first."""
        return self.by_parent.get(id, NO_CHILDREN)
