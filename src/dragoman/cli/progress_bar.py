"""A progress bar on standard error, for work that takes long. Nothing is drawn unless that is a terminal."""

from __future__ import annotations

import shutil
import sys
from time import monotonic
from types import TracebackType

from dragoman.cli.terminal import is_terminal

DELAY = 0.3  # seconds until the bar appears: short work shows none
INTERVAL = 0.1  # seconds between two drawings
BAR = 30  # columns of the bar itself


class ProgressBar:
    """Draws `checking  [######....]  42 %  4,200 of 10,000 rows`. It removes itself at the end."""

    def __init__(self, label: str, unit: str) -> None:
        self._label = label
        self._unit = unit
        self.is_shown = is_terminal(sys.stderr)
        self._next = monotonic() + DELAY
        self._is_drawn = False

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.clear()

    def update(self, done: int, total: int) -> None:
        """Show how much is done. `total`: 0 if it is not known."""
        now = monotonic()
        if total and done >= total:
            self.clear()
            return
        if not self.is_shown or now < self._next:
            return
        self._next = now + INTERVAL
        width = shutil.get_terminal_size().columns - 1
        self._write("\r" + bar_text(self._label, self._unit, done, total)[:width] + "\x1b[K")
        self._is_drawn = True

    def clear(self) -> None:
        """Remove the bar, so that other lines can be written."""
        if self._is_drawn:
            self._write("\r\x1b[K")
            self._is_drawn = False

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:  # a terminal that has gone: the work goes on
            self.is_shown = False


def bar_text(label: str, unit: str, done: int, total: int) -> str:
    if not total:
        return f"{label}  {done:,} {unit}"
    part = min(1.0, done / total)
    filled = int(part * BAR)
    return f"{label}  [{'#' * filled}{'.' * (BAR - filled)}]  {part:4.0%}  {done:,} of {total:,} {unit}"
