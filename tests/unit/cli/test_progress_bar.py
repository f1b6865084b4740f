"""Progress bars: on a terminal only, and gone at the end."""

from __future__ import annotations

import io
import sys

import pytest

from dragoman.cli import progress_bar
from dragoman.cli.progress_bar import ProgressBar, bar_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal_for(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error as a terminal. No fixture: pytest replaces standard error between set-up and test."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress_bar, "DELAY", 0.0)
    monkeypatch.setattr(progress_bar, "INTERVAL", 0.0)
    monkeypatch.setenv("COLUMNS", "100")
    return terminal


def test_bar_shows_part_and_counts() -> None:
    assert (
        bar_text("checking", "rows", 4_200, 10_000) == f"checking  [{'#' * 12}{'.' * 18}]   42%  4,200 of 10,000 rows"
    )
    assert bar_text("checking", "rows", 4_200, 0) == "checking  4,200 rows"
    assert bar_text("checking", "rows", 3, 2).startswith(f"checking  [{'#' * 30}]  100%")


def test_bar_is_drawn_on_a_terminal_and_removed_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    with ProgressBar("checking", "rows") as bar:
        bar.update(1, 4)
        bar.update(2, 4)
    drawn = terminal.getvalue().split("\r")
    assert [line[:8] for line in drawn] == ["", "checking", "checking", "\x1b[K"]


def test_bar_is_removed_when_all_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    bar = ProgressBar("checking", "rows")
    bar.update(1, 2)
    bar.update(2, 2)
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_bar_fits_into_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    monkeypatch.setenv("COLUMNS", "20")
    ProgressBar("checking", "rows").update(1, 4)
    assert terminal.getvalue() == "\rchecking  [#######.\x1b[K"


def test_nothing_is_drawn_into_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    monkeypatch.setattr(progress_bar, "DELAY", 0.0)
    with ProgressBar("checking", "rows") as bar:
        bar.update(1, 4)
    assert pipe.getvalue() == ""


def test_short_work_shows_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    monkeypatch.setattr(progress_bar, "DELAY", 1e9)
    with ProgressBar("checking", "rows") as bar:
        bar.update(1, 4)
    assert terminal.getvalue() == ""
