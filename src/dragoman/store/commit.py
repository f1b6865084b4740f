"""What one commit writes: the last word on each job and each note, whatever was said before it."""

from __future__ import annotations

from dragoman.store.rows import OUTCOME, QUARANTINED, Row


class Commit:
    __slots__ = ("erased", "fates", "heads", "jobs", "notes")

    def __init__(self) -> None:
        self.jobs: list[Row] = []  # new ones
        self.heads: dict[int, Row] = {}  # of older ones, that ask for something else now
        self.fates: dict[int, Row] = {}
        self.notes: dict[str, str | None] = {}
        self.erased: dict[int, None] = {}

    def add_fate(self, number: int, row: Row) -> None:
        self.fates[number] = row

    def add_erased(self, number: int) -> None:
        self.heads.pop(number, None)
        self.fates.pop(number, None)
        self.erased[number] = None

    def take_in(self, later: Commit) -> None:
        """Let what was said later stand for what was said here, but for its new jobs: those are lost."""
        self.heads |= later.heads
        self.fates |= later.fates
        self.notes |= later.notes
        for number in later.erased:
            self.add_erased(number)

    def finished(self) -> list[int]:
        """Jobs whose payload nobody needs any more: they have ended, and cannot be tried again."""
        return [number for number, row in self.fates.items() if row[OUTCOME] is not None and not row[QUARANTINED]]

    def __len__(self) -> int:
        return len(self.jobs) + len(self.heads) + len(self.fates) + len(self.notes) + len(self.erased)
