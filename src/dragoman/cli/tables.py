"""Tables, lists of facts and lines of JSON, for people and programs at a terminal."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Sequence
from datetime import datetime

import click
import msgspec

from dragoman.sdk.printable import printable

_NOT_ASCII = re.compile(r"[^ -~]")


def plain(text: object) -> str:
    """Text as it is, but for what a terminal would obey: names come from strangers (T14)."""
    return printable(text, kept="")


def print_table(titles: Sequence[str], rows: Iterable[Sequence[object]], nothing: str) -> None:
    """Columns as wide as they need to be; numbers to the right. `nothing`: what to say if there are no rows."""
    lines = [list(row) for row in rows]
    if not lines:
        click.echo(nothing, err=True)
        return
    shown = [list(titles), *([plain(each) for each in line] for line in lines)]
    widths = [max(len(line[column]) for line in shown) for column in range(len(titles))]
    is_number = [all(isinstance(line[column], int | float) for line in lines) for column in range(len(titles))]
    for line in shown:
        cells = [
            each.rjust(width) if right else each.ljust(width)
            for each, width, right in zip(line, widths, is_number, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """A name and a value a line; what there is not is not shown."""
    said = [(name, plain(value)) for name, value in facts if value not in (None, "")]
    width = max(len(name) for name, _ in said)
    for name, value in said:
        click.echo(f"{name:<{width}}  {value}")


def print_json(*views: msgspec.Struct) -> None:
    """One view a line, as HTTP has it; but what is not ASCII is escaped, for a terminal might obey it (T14)."""
    for each in views:
        click.echo(_NOT_ASCII.sub(_escaped, msgspec.json.encode(each).decode()))


def _escaped(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1] if found[0] != "\x7f" else r"\u007f"


def text_of(moment: datetime | None) -> str | None:
    """A moment as the broker writes moments."""
    return None if moment is None else str(msgspec.to_builtins(moment))


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
    """How long since then."""
    return span(max(0.0, _since(moment)))


def _since(moment: datetime) -> float:
    return time.time() - moment.timestamp()
