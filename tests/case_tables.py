"""Tables of cases that run as one test: every row runs, and all rows that fail are named together."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable

import pytest


def check_every_row(check: Callable[..., None], rows: Iterable[tuple[object, ...]]) -> None:
    """Call `check` with the cells of each row, and fail with the name and the error of every row that failed.

    `check` creates all objects that it checks, so that rows do not depend on each other. The first error is the cause
    of the failure, with its traceback.
    """
    failures: list[str] = []
    errors: list[BaseException] = []
    count = 0
    for row in rows:
        count += 1
        try:
            check(*row)
        except (Exception, pytest.fail.Exception) as error:
            line = traceback.extract_tb(error.__traceback__)[-1].lineno
            failures.append(f"{name_of(row)}: {type(error).__name__}, line {line}: {error}")
            errors.append(error)
    assert count, "the table has no rows"
    if failures:
        raise AssertionError(f"{len(failures)} of {count} rows failed:\n" + "\n".join(failures)) from errors[0]


def name_of(row: tuple[object, ...]) -> str:
    return " | ".join(_shown(cell) for cell in row)


def _shown(cell: object) -> str:
    """Return the text of a cell on one line, shortened if it is long."""
    text = ascii(cell) if isinstance(cell, bytes) else str(cell)
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= 100 else text[:100] + "..."
