"""Texts of `dragoman top`: numbers, sparklines, and tables that fit the screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dragoman.cli.event_lines import duration
from dragoman.cli.tables import plain
from dragoman.cli.terminal import padded, shortened, text_width

BLOCKS = "▁▂▃▄▅▆▇█"
SPARK = 15  # columns of a sparkline: 20 seconds each
SHORTEST = 0.0005  # seconds; a quantile at or below it lies in the first bucket of the histogram
NARROWEST = 8  # columns that a shortened cell keeps
WIDEST = 24  # columns of a text beyond which it is shortened before a column is left out
NONE = "–"

Paint = Callable[[str, str], str]  # a style and a text; returns the text with the style


def plain_paint(style: str, text: str) -> str:
    """Return the text without its style."""
    return text


def rate(value: float | None) -> str:
    """`2,010`, `22`, `1.8`, `0`: jobs a second."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if value >= 10 or value < 0.05 else f"{value:.1f}"


def share(part: float, whole: float) -> str:
    """`1.2 %`, `0.04 %`; a dash if there is none."""
    if not part or not whole:
        return NONE
    percent = 100 * part / whole
    return f"{percent:.2f} %" if percent < 0.1 else f"{percent:.1f} %"


def quantile(seconds: float | None) -> str:
    """A quantile of durations. The first bucket of a histogram has no lower bound."""
    if seconds is None:
        return NONE
    return "< 0.5 ms" if seconds <= SHORTEST else duration(seconds)


def quantiles(values: Sequence[float | None] | None) -> str:
    """The median and the 95th percentile."""
    first, second = (values or [None, None])[:2]
    return f"{quantile(first)} / {quantile(second)}"


def sparkline(values: Sequence[float | None], width: int = SPARK) -> str:
    """A column for each group of values, the latest to the right; a space where nothing is known."""
    size = max(1, -(-len(values) // width))
    groups = [values[max(0, end - size) : end] for end in range(len(values), 0, -size)][::-1]
    means = [_mean([each for each in group if each is not None]) for group in groups]
    highest = max((each for each in means if each is not None), default=0.0)
    shown = "".join(" " if each is None else _block(each, highest) for each in means)
    return shown.rjust(width)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _block(value: float, highest: float) -> str:
    return BLOCKS[round(value / highest * (len(BLOCKS) - 1))] if highest else BLOCKS[0]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. Columns with a higher `spare` are left out first where the screen is narrow; 0: never."""

    title: str
    to_right: bool = False
    spare: int = 0


def within(parts: Sequence[str], width: int, last: Sequence[str] = (), gaps: Sequence[str] = ("   ", "  ")) -> str:
    """The parts in one line, and then those in `last`, with smaller gaps if they do not fit; then the latest of `parts`
    are left out."""
    for gap in gaps:
        if text_width(gap.join([*parts, *last])) <= width:
            return gap.join([*parts, *last])
    while len(parts) > 1 and text_width(gaps[-1].join([*parts, *last])) > width:
        parts = parts[:-1]
    return shortened(gaps[-1].join([*parts, *last]), width)


def fitted(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """The lines of a table, the titles first, none wider than `width`. Long texts are shortened first, then columns are
    left out, then all texts are shortened."""
    cells = [[column.title for column in columns], *([plain(each) for each in row] for row in rows)]
    kept = list(range(len(columns)))
    whole = [max(text_width(row[number]) for row in cells) for number in kept]
    widths = whole[:]

    def left() -> int:
        return width - sum(widths[each] for each in kept) - 2 * (len(kept) - 1)

    while left() < 0:
        widest = max(kept, key=widths.__getitem__)
        spare = max(kept, key=lambda each: columns[each].spare)
        if widths[widest] <= WIDEST and columns[spare].spare:
            kept.remove(spare)
        elif widths[widest] <= NARROWEST:
            break
        else:
            widths[widest] -= 1
    for each in kept:  # a column that was left out may have made room
        widths[each] += max(0, min(left(), whole[each] - widths[each]))
    lines = []
    for row in cells:
        shown = [
            padded(shortened(row[each], widths[each]), widths[each], to_right=columns[each].to_right) for each in kept
        ]
        lines.append(shortened("  ".join(shown).rstrip(), width))
    return lines
