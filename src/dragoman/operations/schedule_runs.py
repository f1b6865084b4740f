"""The latest runs of a schedule: which have ended and how, which were skipped.

The end of a run arrives from its job. After a restart of the broker it does not; the run is then looked up when the
schedule is used again, and left out if its job is not known any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from dragoman.operations.schemas import JobView

MOST_RECENT: Final = 20
MOST_OPEN: Final = 20  # runs of a schedule with `overlap` that have not ended
SKIPPED: Final = "s"
LETTERS: Final = {"done": "d", "failed": "f", "timed out": "t", "lost": "l", "cancelled": "c", "refused": "r"}


class RecentRuns(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Part of the stored state of a schedule."""

    letters: str = ""  # one for each run that ended or was skipped, oldest first
    took: float | None = None  # run time in seconds of the run that ended last
    open: list[str] = msgspec.field(default_factory=list)  # ids of jobs whose end is not known

    def begin(self, job: str) -> None:
        self.open = [*self.open, job][-MOST_OPEN:]

    def skip(self) -> None:
        self._add(SKIPPED)

    def end(self, view: JobView) -> bool:
        """Record the end of a run. False if it has not ended, or is recorded already."""
        if view.id not in self.open or view.outcome is None:
            return False
        self._close(view.id)
        self._add(LETTERS[view.outcome])
        begin = view.started or view.created
        if view.ended is not None:
            self.took = round(max(0.0, (view.ended - begin).total_seconds()), 3)
        return True

    def look_up(self, find: Callable[[str], JobView | None], is_complete: bool) -> None:
        """Record the runs that have ended meanwhile. `find` returns the job, or None if it is not known. `is_complete`:
        all jobs are known, so a run that is not is left out for ever."""
        for job in self.open:
            view = find(job)
            if view is not None:
                self.end(view)
            elif is_complete:
                self._close(job)

    def _close(self, job: str) -> None:
        self.open = [each for each in self.open if each != job]

    def _add(self, letter: str) -> None:
        self.letters = (self.letters + letter)[-MOST_RECENT:]
