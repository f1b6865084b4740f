"""Errors of the access folder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One error in a file or folder, and its correction."""

    file: str
    line: int | None  # None: it belongs to no line, or the line is unknown
    text: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}, line {self.line}"
        return f"{where}: {self.text}"


class AccessError(Exception):
    """The access folder cannot be used. No part of it is."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        first, *others = self.problems
        more = f" (and {len(others)} more: `dragoman access check` lists all)" if others else ""
        super().__init__(f"{first}{more}")


def access_error(file: object, text: str) -> AccessError:
    """An error with one problem, which belongs to no line."""
    return AccessError([Problem(str(file), None, text)])
