"""The changes of one commit: the latest state of each job and each value."""

from __future__ import annotations

from dragoman.core.model import Payload
from dragoman.store.rows import OUTCOME, QUARANTINED, Row


class Commit:
    """Changes by job number or key; a later change replaces an earlier one."""

    __slots__ = ("erased", "heads", "jobs", "notes", "payloads", "statuses")

    def __init__(self) -> None:
        self.jobs: list[Row] = []  # new jobs
        self.heads: dict[int, Row] = {}  # stored jobs whose options, key or extras have changed
        self.payloads: dict[int, Payload] = {}  # of stored jobs whose payload has changed
        self.statuses: dict[int, Row] = {}
        self.notes: dict[str, str | None] = {}
        self.erased: dict[int, None] = {}

    def add_status(self, number: int, row: Row) -> None:
        self.statuses[number] = row

    def add_erased(self, number: int) -> None:
        self.heads.pop(number, None)
        self.payloads.pop(number, None)
        self.statuses.pop(number, None)
        self.erased[number] = None

    def forget(self, keys: list[str]) -> None:
        """Leave these values as they are in the store."""
        for key in keys:
            self.notes.pop(key, None)

    def merge(self, later: Commit) -> None:
        """Merge a later commit into this one, without its new jobs: those are refused."""
        self.heads |= later.heads
        self.payloads |= later.payloads
        self.statuses |= later.statuses
        self.notes |= later.notes
        for number in later.erased:
            self.add_erased(number)

    def finished(self) -> list[int]:
        """Return the jobs whose payload is not needed any more: they have ended and cannot be retried."""
        return [number for number, row in self.statuses.items() if row[OUTCOME] is not None and not row[QUARANTINED]]

    def __len__(self) -> int:
        changes = len(self.heads) + len(self.payloads) + len(self.statuses) + len(self.notes) + len(self.erased)
        return len(self.jobs) + changes
