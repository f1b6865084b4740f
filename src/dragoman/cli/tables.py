"""Tables, lists of facts and lines of JSON on standard output."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Sequence
from datetime import datetime

import click
import msgspec

from dragoman.cli.terminal import coloured, is_terminal, padded, shortened, terminal_width, text_width, title
from dragoman.sdk.printable import printable

_NOT_ASCII = re.compile(r"[^ -~]")
LAST = 10  # characters to which the last column is shortened before any other
LEAST = 4  # characters that a column keeps
COLOURED = ("STATE", "OUTCOME", "BROKER")  # columns and facts whose words have colours on a terminal


def plain(text: object) -> str:
    """The text with control characters escaped, which a terminal would obey: names come from peers (T14)."""
    return printable(text, kept="")


def print_table(titles: Sequence[str], rows: Iterable[Sequence[object]], nothing: str, *, fits: bool = False) -> None:
    """Print rows in aligned columns, numbers to the right. `nothing`: the line for standard error if there are none.
    `fits`: on a terminal, shorten columns so that a line is not wider than the terminal."""
    lines = [list(row) for row in rows]
    if not lines:
        click.echo(nothing, err=True)
        return
    shown = [list(titles), *([plain(each) for each in line] for line in lines)]
    widths = _widths(shown)
    if fits and is_terminal():
        _fit(widths, _widths(shown[1:]), terminal_width())
        shown = [[shortened(each, width) for each, width in zip(line, widths, strict=True)] for line in shown]
    is_number = [all(_is_number(line[column]) for line in lines) for column in range(len(titles))]
    for number, line in enumerate(shown):
        cells = [
            padded(each, width, to_right=right) for each, width, right in zip(line, widths, is_number, strict=True)
        ]
        cells[-1] = cells[-1].rstrip()
        if number == 0:
            click.echo(title("  ".join(cells).rstrip()))
            continue
        painted = [coloured(each) if name in COLOURED else each for name, each in zip(titles, cells, strict=True)]
        click.echo("  ".join(painted).rstrip())


def _widths(lines: list[list[str]]) -> list[int]:
    """The width of each column."""
    return [max(map(text_width, column)) for column in zip(*lines, strict=True)]


def _fit(widths: list[int], cells: list[int], most: float) -> None:
    """Narrow the columns until a line has at most `most` characters: the last one first, whose text can be long, then
    titles that are wider than the `cells` below them, then always the widest column. The first column stays whole:
    it has the name that other commands need."""
    excess = sum(widths) + 2 * (len(widths) - 1) - most
    others = range(1, len(widths))
    while excess > 0:
        spare = [column for column in others if widths[column] > max(cells[column], LEAST)]
        column = len(widths) - 1 if widths[-1] > LAST else max(spare or others, key=widths.__getitem__)
        if widths[column] <= LEAST:
            return
        widths[column] -= 1
        excess -= 1


def _is_number(cell: object) -> bool:
    return cell.isdecimal() if isinstance(cell, str) else isinstance(cell, int | float)


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print a name and a value on each line. A fact without a value is left out."""
    shown = [(name, plain(value)) for name, value in facts if value not in (None, "")]
    width = max(len(name) for name, _ in shown)
    for name, value in shown:
        click.echo(f"{title(padded(name, width))}  {coloured(value) if name.upper() in COLOURED else value}")


def print_json(*views: msgspec.Struct) -> None:
    """Print one view a line, as HTTP has it. Characters outside ASCII are escaped: a terminal might obey them (T14)."""
    for each in views:
        click.echo(_NOT_ASCII.sub(_escaped, msgspec.json.encode(each).decode()))


def _escaped(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1] if found[0] != "\x7f" else r"\u007f"


def size_text(size: int) -> str:
    """`64MiB`, `1000`: a number of bytes in the largest unit in which it is whole, as settings accept it."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def rounded_size(size: int) -> str:
    """`512 B`, `1.5 KiB`, `64 MiB`."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1_000:
            return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1_024
    return f"{value:.1f} TiB"


def span(seconds: float) -> str:
    """`4.2 s`, `3 min`, `5 h`, `2 d`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, size in (("s", 120), ("min", 7200), ("h", 172_800)):
        if seconds < size:
            return f"{seconds / {'s': 1, 'min': 60, 'h': 3600}[unit]:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def ago(moment: datetime) -> str:
    """`5 min ago`; `in 5 min` if it is still to come."""
    passed = _since(moment)
    return f"{span(passed)} ago" if passed >= 0 else f"in {span(-passed)}"


def age(moment: datetime) -> str:
    """The time that has passed since then, such as `5 min`."""
    return span(max(0.0, _since(moment)))


def _since(moment: datetime) -> float:
    return time.time() - moment.timestamp()
