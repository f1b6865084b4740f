"""Ladders: the conversation of a job or a worker as text, as Mermaid, or as a picture (SVG).

Lanes are the parties, from left to right: callers, the broker, workers. Each message is a row, in the order in which
the broker saw it, not to scale; a long silence is a break in all lanes, with its length. `http/ui/ladder.js` draws the
same picture in a browser, and a test compares the two. Nothing here reads a clock or a file.
"""

from __future__ import annotations

from itertools import pairwise
from math import floor
from typing import Final

from dragoman.operations.ladder_schemas import ConversationView, LaneView, RowView

MOST_LANES: Final = 6
MOST_CALLERS: Final = 2
SILENCE: Final = 1.0  # seconds; a shorter silence is no break
TIMES_MEDIAN: Final = 10  # a break is longer than this many times the median silence
RECONSTRUCTED: Final = "Reconstructed from the history of the job."  # the messages were not recorded
ENTITIES: Final = {"#": "#35;", ";": "#59;", "<": "#lt;", ">": "#gt;", '"': "#quot;"}  # of Mermaid

# ---------------------------------------------------------------- text


def as_text(view: ConversationView) -> str:
    """Return the conversation as lines: `worker --- RESULT --> broker`."""
    lines = [heading(view), *(line for row in with_breaks(view.messages) for line in _text_rows(row, view))]
    if view.more:
        lines.append(f"{'':>10}  … {view.more} more")
    return "\n".join(lines) + "\n"


def heading(view: ConversationView) -> str:
    """Return the subject of a conversation, and its parties."""
    subject = f"Job {view.job}" if view.job is not None else f"Worker {view.worker}"
    how = "" if view.recorded == "messages" else ", reconstructed from its history"
    parties = ", ".join(f"{plain(each.name)} ({_role(each)})" for each in view.lanes if each.role != "broker")
    return f"{subject}{how}: {parties or 'no messages yet'}"


def text_row(row: RowView, view: ConversationView) -> str:
    """Return one row as a line, without a break in front of it."""
    names = {each.id: plain(each.name) if each.role != "broker" else "broker" for each in view.lanes}
    stamp = f"{since(row.t):>10}"
    if row.attempt:
        return f"{'':>10}  -- {row.title}: {plain(row.says)}" if row.says else f"{'':>10}  -- {row.title}"
    if row.note:
        return f"{stamp}  ({plain(row.note)})"
    if row.lost:
        return f"{stamp}  {names.get(row.at, row.at)} x {plain(row.lost)}"
    message = plain(row.message) + (f" × {row.count}" if row.count > 1 else "")
    head = "-->" if not row.dropped and not row.unsent else "--x"
    details = [size(row.size)] if row.size else []
    details += [each for each in (row.dropped, row.unsent, row.job[:12]) if each]
    line = f"{stamp}  {names.get(row.sender, row.sender)} --- {message} {head} {names.get(row.receiver, row.receiver)}"
    return "  ".join([line, *details])


def break_before(rows: list[RowView], index: int) -> list[str]:
    """Return the line of the silence before a row, if it was long."""
    last = with_breaks(rows[: index + 1])[-2:]
    return [_break(last[0])] if isinstance(last[0], float) else []


def _break(gap: float) -> str:
    return f"{'+ ' + duration(gap):>10}  ~"


def _text_rows(row: RowView | float, view: ConversationView) -> list[str]:
    return [_break(row)] if isinstance(row, float) else [text_row(row, view)]


# ---------------------------------------------------------------- Mermaid


def as_mermaid(view: ConversationView) -> str:
    """Return the conversation as a sequence diagram in Mermaid's language."""
    lines = ["sequenceDiagram"]
    for lane in view.lanes:
        dialect = f" ({lane.dialect})" if lane.dialect else ""
        lines.append(f"    participant {lane.id} as {_mermaid(lane.name + dialect)}")
    if view.recorded == "milestones":
        lines.append(f"    Note over b: {RECONSTRUCTED}")
    for row in with_breaks(view.messages):
        lines.append("    " + _mermaid_row(row))
    if view.more:
        lines.append(f"    Note over b: … {view.more} more")
    return "\n".join(lines) + "\n"


def _mermaid_row(row: RowView | float) -> str:
    if isinstance(row, float):
        return f"Note over b: + {duration(row)}"
    if row.attempt:
        return f"Note over b: {_mermaid(f'{row.title}: {row.says}' if row.says else row.title)}"
    if row.note:
        return f"Note over b: {_mermaid(row.note)}"
    if row.lost:
        return f"Note over {row.at}: {_mermaid(row.lost)}"
    arrow = "-x" if row.dropped or row.unsent else "->>"
    reason = f", {row.dropped or row.unsent}" if row.dropped or row.unsent else ""
    count = f" × {row.count}" if row.count > 1 else ""
    return f"{row.sender}{arrow}{row.receiver}: {_mermaid(row.message + count + reason)}"


def _mermaid(text: str) -> str:
    """Escape a text: Mermaid ends a line at `;`, starts an entity at `#`, and takes a bare `end` for its keyword."""
    escaped = "".join(ENTITIES.get(each, each) for each in plain(text))
    return f"#8203;{escaped}" if escaped.strip().lower() == "end" else escaped


# ---------------------------------------------------------------- rows and lanes


def with_breaks(rows: list[RowView]) -> list[RowView | float]:
    """Return the rows, and before each the length of a long silence, if there was one."""
    gaps = [max(after.t - before.t, 0.0) for before, after in pairwise(rows)]
    median = sorted(gaps)[(len(gaps) - 1) // 2] if gaps else 0.0
    found: list[RowView | float] = []
    for index, row in enumerate(rows):
        gap = gaps[index - 1] if index else 0.0
        if gap > SILENCE and gap > TIMES_MEDIAN * median:
            found.append(gap)
        found.append(row)
    return found


def for_picture(view: ConversationView) -> tuple[list[LaneView], list[RowView]]:
    """Return the lanes and rows of a picture. Of many workers, it shows the first ones and the last one."""
    callers = [each for each in view.lanes if each.role == "caller"]
    workers = [each for each in view.lanes if each.role == "worker"]
    broker = [each for each in view.lanes if each.role == "broker"]
    others = {each.id for each in callers[MOST_CALLERS:]}
    callers = callers[:MOST_CALLERS]
    most = MOST_LANES - 1 - len(callers)
    hidden = {each.id for each in workers[most - 1 : -1]} if len(workers) > most else set()
    shown = [each for each in workers if each.id not in hidden]
    hidden |= others
    attempts = sum(1 for row in view.messages if row.attempt and row.lane in hidden)
    rows: list[RowView] = []
    is_hidden = is_told = False
    for row in view.messages:
        if row.attempt:
            is_hidden = row.lane in hidden
            if is_hidden and not is_told:
                rows.append(RowView(t=row.t, attempt=row.attempt, title=f"… {attempts} more attempts"))
                is_told = True
        if not (is_hidden and (row.attempt or row.note)) and not {row.sender, row.receiver, row.at} & hidden:
            rows.append(row)
    return [*callers, *broker, *shown], rows


# ---------------------------------------------------------------- words and numbers


def plain(text: str) -> str:
    """Return a text without control characters: each becomes its escape."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def since(t: float) -> str:
    """Return a time since the first row."""
    return f"{fixed(t * 1000.0, 1)} ms" if t < 1.0 else f"{fixed(t, 2)} s"


def duration(seconds: float) -> str:
    if seconds < 10.0:
        return f"{fixed(seconds, 1)} s"
    return f"{fixed(seconds, 0)} s" if seconds < 120.0 else f"{fixed(seconds / 60.0, 0)} min"


def size(count: int) -> str:
    """Return a number of bytes with its unit."""
    if count < 1024:
        return f"{count} B"
    unit, letters = (1024, "KiB") if count < 1024**2 else (1024**2, "MiB")
    return f"{fixed(count / unit, 1)} {letters}"


def fixed(number: float, digits: int) -> str:
    """Return a number with these digits after the point. Halves are rounded up, as the browser's code does it."""
    scale = 10**digits
    scaled = floor(number * scale + 0.5)
    whole, rest = divmod(scaled, scale)
    return f"{whole}.{rest:0{digits}}" if digits else str(whole)


def _role(lane: LaneView) -> str:
    return f"{lane.dialect} {lane.role}" if lane.dialect else lane.role
