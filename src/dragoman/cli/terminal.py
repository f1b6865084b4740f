"""The terminal: whether output goes to one, colours, times, and the width of text on it."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from math import inf
from shutil import get_terminal_size
from typing import TextIO
from unicodedata import combining, east_asian_width

import click

# Colours of states and outcomes. Other words have none.
COLOURS = {
    "done": "green",
    "idle": "green",
    "ready": "green",
    "running": "cyan",
    "busy": "cyan",
    "failed": "red",
    "lost": "red",
    "timed out": "red",
    "refused": "red",
    "gone": "red",
    "not ready": "red",
    "cancelled": "yellow",
    "paused": "yellow",
    "draining": "yellow",
    "stuck": "yellow",
    "detached": "yellow",
    "loading": "yellow",
}


def is_terminal(stream: TextIO | None = None) -> bool:
    """True if this stream, or standard output, is a terminal."""
    out = sys.stdout if stream is None else stream
    return out is not None and out.isatty()


def has_colours(stream: TextIO | None = None) -> bool:
    """True if text for this stream may have colours: it is a terminal, and NO_COLOR is not set (https://no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def title(text: str) -> str:
    """A heading on standard output: bold on a terminal."""
    return click.style(text, bold=True) if has_colours() else text


def coloured(text: str) -> str:
    """A state or an outcome on standard output, in its colour on a terminal. A comma may follow with more about it."""
    colour = COLOURS.get(text.partition(",")[0].strip())
    return click.style(text, fg=colour) if colour is not None and has_colours() else text


def time_text(moment: datetime | None) -> str | None:
    """A time in ISO 8601 with milliseconds: local on a terminal, else in UTC."""
    if moment is None:
        return None
    if is_terminal():
        return moment.astimezone().isoformat(timespec="milliseconds")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def text_width(text: str) -> int:
    """Columns that this text takes: wide characters of East Asian scripts take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text)


def terminal_width() -> float:
    """Columns of the terminal: those of the variable COLUMNS or of standard output; infinite if unknown."""
    return get_terminal_size((0, 0)).columns or inf


def shortened(text: str, width: int) -> str:
    """The text, cut so that it takes at most this width, with `…` at its end if it was cut."""
    if text_width(text) <= width:
        return text
    while text_width(text) >= width:
        text = text[:-1]
    return f"{text}…"


def padded(text: str, width: int, *, to_right: bool = False) -> str:
    """The text with spaces to this width, behind it or in front of it."""
    spaces = " " * (width - text_width(text))
    return spaces + text if to_right else text + spaces
