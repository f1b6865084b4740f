"""Numbers of kept outcomes, by service, so that a view reads them without a search."""

from __future__ import annotations

from dragoman.core.model import Job
from dragoman.core.states import DONE


class KeptCount:
    """Ended jobs whose outcome is kept."""

    __slots__ = ("done", "quarantined", "undone")

    def __init__(self) -> None:
        self.done = 0
        self.undone = 0  # ended otherwise than `done`, in quarantine or not
        self.quarantined = 0


class KeptCounts:
    """The numbers of each service, and of all together. A name without kept outcomes takes no memory."""

    __slots__ = ("by_service", "total")

    def __init__(self) -> None:
        self.total = KeptCount()
        self.by_service: dict[str, KeptCount] = {}

    def of(self, service: str) -> KeptCount:
        """Return the numbers of a service, for reading."""
        return self.by_service.get(service) or KeptCount()

    def change(self, job: Job, change: int) -> None:
        """Count a job whose outcome is kept from now on (1), or no longer (-1)."""
        name = job.service.name
        count = self.by_service.get(name)
        if count is None:
            count = self.by_service[name] = KeptCount()
        for each in (count, self.total):
            if job.outcome is DONE:
                each.done += change
            else:
                each.undone += change
        if not count.done and not count.undone:
            del self.by_service[name]

    def change_quarantined(self, job: Job, change: int) -> None:
        """Count a kept job that enters the quarantine (1), or leaves it (-1)."""
        self.by_service[job.service.name].quarantined += change
        self.total.quarantined += change
