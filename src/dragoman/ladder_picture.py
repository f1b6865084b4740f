"""Pictures of ladders: SVG that follows the reader's choice of light or dark.

`http/ui/ladder.js` draws the same picture, with the same numbers and classes; the page's own style sheet has the
colours there.
"""

from __future__ import annotations

from html import escape
from typing import Final

from dragoman.dialects.catalogue import DIALECTS
from dragoman.ladder import RECONSTRUCTED, duration, for_picture, plain, since, size, with_breaks
from dragoman.operations.ladder_schemas import ConversationView, LaneView, RowView

ROW: Final = 25  # height of a row
HEAD: Final = 52
BREAK: Final = 27
BAND: Final = 42
WIDTH: Final = 830
MARGIN: Final = 12  # at both sides, for wide times and names
NARROW_WIDTH: Final = 352
SHORT_NOTE: Final = 28  # letters
LONGEST_NOTE: Final = 64
LONGEST_NARROW_NOTE: Final = 24
LONGEST_SAYS: Final = 100
LONGEST_NARROW_SAYS: Final = 40
CROWD: Final = 3  # workers; the names of more are shorter
LEFT_OF: Final = 200  # pixels from the right edge: texts of lanes further right are on their left
KINDS: Final = {"done": "done", "failed": "failed", "timed out": "timed", "lost": "lost"}  # classes of notes

# Colours in light and dark, by the names that the style sheet of the pages uses.
COLOURS: Final = {
    "panel": ("#ffffff", "#15171a"),
    "sunk": ("#f3f3f1", "#1b1e22"),
    "line-2": ("#d5d4d0", "#383c43"),
    "ink": ("#1b1c1e", "#eaebec"),
    "ink-2": ("#54585e", "#a9aeb6"),
    "ink-3": ("#666b72", "#8b919a"),
    "done": ("#1a7f4b", "#4cc38a"),
    "failed": ("#c4303a", "#ff7f83"),
    "timed": ("#b04e0a", "#ff9f5c"),
    "lost": ("#8a3fb5", "#d097f0"),
    "native": ("#4353c8", "#8f9bff"),
    "pingpong": ("#0a7384", "#4cc5d8"),
    "memodb": ("#267837", "#69cf80"),
    "powerhose": ("#c2255c", "#ff7fab"),
    "controller": ("#a65500", "#f0a04b"),
    "majordomo": ("#7048e8", "#b79bff"),
    "http": ("#5c636b", "#aab2bb"),
}
CLASSES: Final = tuple(COLOURS)[6:]  # those that set the colour of an element

# The rules of `http/ui/ladder.css`.
RULES: Final = """\
.ladder { display: block; width: 100%; --c: var(--ink-3); }
.ladder path { fill: none; }
.ladder text { fill: var(--ink-2); font: 11.5px system-ui, sans-serif; paint-order: stroke; }
.ladder .life { stroke: var(--line-2); stroke-width: 1; }
.ladder .act { fill: var(--c); opacity: .16; }
.ladder .arrow { stroke: var(--c); stroke-width: 1.4; }
.ladder .dashed { stroke-dasharray: 4 3; }
.ladder .dot { fill: var(--c); }
.ladder .who { fill: var(--ink); font-size: 12.5px; font-weight: 600; }
.ladder .role { fill: var(--c); }
.ladder .message { fill: var(--ink); font-family: ui-monospace, Menlo, Consolas, monospace; }
.ladder .size, .ladder .time { fill: var(--ink-3); font-size: 11px; }
.ladder .time { font-family: ui-monospace, Menlo, Consolas, monospace; }
.ladder .note { fill: var(--c); font-family: system-ui, sans-serif; font-weight: 550; }
.ladder .note, .ladder .message { stroke: var(--panel); stroke-width: 3px; }
.ladder .gap { fill: var(--panel); }
.ladder .zig { stroke: var(--ink-3); stroke-width: 1; }
.ladder .band { fill: var(--sunk); }
.ladder .title { fill: var(--ink-2); font-weight: 550; }
"""


def as_svg(view: ConversationView) -> str:
    """Return the picture as a file of its own."""
    light = " ".join(f"--{name}: {pair[0]};" for name, pair in COLOURS.items())
    dark = " ".join(f"--{name}: {pair[1]};" for name, pair in COLOURS.items())
    classes = "\n".join(f".c-{name} {{ --c: var(--{name}); }}" for name in CLASSES)
    style = (
        f"<style>\n:root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
        f"svg {{ background: var(--panel); }}\n{classes}\n{RULES}</style>"
    )
    head, rest = draw(view).split(">", 1)
    return f'{head} xmlns="http://www.w3.org/2000/svg">{style}{rest}\n'


def draw(view: ConversationView, *, is_narrow: bool = False) -> str:
    """Return the picture without styles. On a narrow screen all workers share one lane: an attempt has one worker, and
    its band has the name."""
    lanes, rows = for_picture(view)
    remarks = [f"… {view.more} more"] if view.more else []
    remarks += [RECONSTRUCTED] if view.recorded == "milestones" else []
    return Picture(lanes, is_narrow).draw(rows, remarks)


class Picture:
    """Draws one ladder, from top to bottom."""

    def __init__(self, lanes: list[LaneView], is_narrow: bool) -> None:
        self._lanes = lanes
        self._is_narrow = is_narrow
        self._width = NARROW_WIDTH if is_narrow else WIDTH
        self._gutter = 58
        self._broker = 166 if is_narrow else 306
        self._xs = self._places()
        self._colours = {lane.id: f"c-{lane.dialect}" if lane.dialect else "c-none" for lane in lanes}
        self._began: dict[str, int] = {}  # where the attempt of each worker begins
        self._bars: list[str] = []
        self._marks: list[str] = []
        self._y = HEAD + 10

    def draw(self, rows: list[RowView], remarks: list[str]) -> str:
        for row in with_breaks(rows):
            if isinstance(row, float):
                self._break(row)
            elif row.attempt:
                self._band(row)
            else:
                self._row(row)
        for lane in list(self._began):
            self._bar(lane)
        for remark in remarks:
            self._y += ROW
            self._marks.append(f'<text class="size" x="12" y="{self._y + 4}">{remark}</text>')
        bottom = self._y + 22
        lives = "".join(f'<path class="life" d="M{x} {HEAD - 5}V{bottom}"/>' for x in self._different_xs())
        return (
            f'<svg class="ladder" viewBox="{-MARGIN} 0 {self._width + 2 * MARGIN} {bottom + 6}" role="img" '
            f'aria-label="Messages in the order in which the broker saw them">{lives}{"".join(self._bars)}'
            f"{self._heads()}{''.join(self._marks)}</svg>"
        )

    # ---------------------------------------------------------------- lanes

    def _places(self) -> dict[str, int]:
        """Return the x of each lane."""
        callers = [lane for lane in self._lanes if lane.role == "caller"]
        workers = [lane for lane in self._lanes if lane.role == "worker"]
        first, last = (302, 302) if self._is_narrow else (474, WIDTH - 58)
        places = {}
        for index, lane in enumerate(callers):
            places[lane.id] = 74 if self._is_narrow else 112 + 88 * index
        for lane in self._lanes:
            if lane.role == "broker":
                places[lane.id] = self._broker
        for index, lane in enumerate(workers):
            if len(workers) == 1:
                places[lane.id] = first if self._is_narrow else first + 120
            else:
                places[lane.id] = first + (last - first) * index // (len(workers) - 1)
        return places

    def _different_xs(self) -> list[int]:
        return list(dict.fromkeys(self._xs.values()))

    def _heads(self) -> str:
        heads = []
        workers = sum(lane.role == "worker" for lane in self._lanes)
        taken: list[int] = []
        for lane in self._lanes:
            x = self._xs[lane.id]
            if x in taken:
                continue
            taken.append(x)
            is_shared = self._is_narrow and lane.role == "worker" and workers > 1
            is_crowded = self._is_narrow or (workers > CROWD and lane.role == "worker")
            name = f"{workers} workers" if is_shared else _cut(lane.name, 12 if is_crowded else 18)
            dialect = _title(lane.dialect or "")
            role = f"{dialect} {lane.role}" if dialect and not is_crowded else dialect or lane.role
            role = "" if is_shared else role
            colour = "c-none" if is_shared else self._colours[lane.id]
            heads.append(
                f'<g class="{colour}"><text class="who" x="{x}" y="16" text-anchor="middle">{_text(name)}</text>'
                f'<text class="role" x="{x}" y="33" text-anchor="middle">{_text(role)}</text>'
                f'<circle class="dot" cx="{x}" cy="{HEAD - 8}" r="3"/></g>'
            )
        return "".join(heads)

    # ---------------------------------------------------------------- rows

    def _break(self, gap: float) -> None:
        y = self._y + 11
        zigs = "".join(
            f'<rect class="gap" x="{x - 4}" y="{y - 1}" width="8" height="16"/>'
            f'<path class="zig" d="M{x} {y}l-3.5 3.5l7 7l-3.5 3.5"/>'
            for x in self._different_xs()
        )
        self._marks.append(f'{zigs}<text class="time" x="{self._gutter}" y="{y + 11}" text-anchor="end">')
        self._marks.append(f"+ {duration(gap)}</text>")
        self._y += BREAK

    def _band(self, row: RowView) -> None:
        y = self._y
        most = LONGEST_NARROW_SAYS if self._is_narrow else LONGEST_SAYS
        says = f' <tspan class="size" dx="6">{_text(_cut(row.says, most))}</tspan>' if row.says else ""
        self._marks.append(
            f'<rect class="band" x="0" y="{y + 15}" width="{self._width}" height="22" rx="5"/>'
            f'<text class="title" x="12" y="{y + 30}">{_text(row.title)}{says}</text>'
        )
        if row.lane:
            self._began[row.lane] = y + ROW + 26
        self._y += BAND

    def _row(self, row: RowView) -> None:
        self._y += ROW
        y = self._y
        if row.ends:
            self._bar(row.ends)
        self._marks.append(f'<text class="time" x="{self._gutter}" y="{y + 4}" text-anchor="end">{since(row.t)}</text>')
        if row.note:
            self._note(row, y)
        elif row.lost:
            x = self._xs[row.at]
            is_left = x > self._broker and (self._is_narrow or x > WIDTH - LEFT_OF)
            self._marks.append(
                f'<g class="c-lost"><path class="arrow" d="M{x - 5} {y - 5}l10 10m0 -10l-10 10"/>'
                f'<text class="note" x="{x - 10 if is_left else x + 12}" y="{y + 4}" '
                f'text-anchor="{"end" if is_left else "start"}">{_text(row.lost)}</text></g>'
            )
        else:
            self._message(row, y)

    def _note(self, row: RowView, y: int) -> None:
        is_right = self._is_narrow or len(row.note) > SHORT_NOTE  # there is more room
        x = self._broker + (10 if is_right else -12)
        note = _cut(row.note, LONGEST_NARROW_NOTE if self._is_narrow else LONGEST_NOTE)
        colour = f"c-{KINDS[row.kind]}" if row.kind in KINDS else "c-none"
        self._marks.append(
            f'<g class="{colour}"><circle class="dot" cx="{self._broker}" cy="{y}" r="3"/><text class="note" '
            f'x="{x}" y="{y + 4}" text-anchor="{"start" if is_right else "end"}">{_text(note)}</text></g>'
        )

    def _message(self, row: RowView, y: int) -> None:
        start, end = self._xs[row.sender], self._xs[row.receiver]
        way = 1 if end > start else -1
        is_cut = bool(row.dropped or row.unsent)
        peer = row.receiver if self._xs[row.sender] == self._broker else row.sender
        is_caller = self._xs[peer] < self._broker
        if row.dropped:
            end -= way * 13
        elif row.unsent:
            end = start + way * 30
        head = (
            f'<g class="c-timed"><path class="arrow" d="M{end - 4} {y - 1}l8 8m0 -8l-8 8"/></g>'
            if is_cut
            else f'<path class="arrow" d="M{end - way * 7} {y - 1}L{end - way * 2} {y + 3}L{end - way * 7} {y + 7}"/>'
        )
        x = self._broker + (-12 if is_caller else 12)
        count = f" × {row.count}" if row.count > 1 else ""
        bytes = f' <tspan class="size">{size(row.size)}</tspan>' if row.size and not self._is_narrow else ""
        reason = f' <tspan class="note c-timed" dx="6">{_text(row.dropped or row.unsent)}</tspan>' if is_cut else ""
        self._marks.append(
            f'<g class="{self._colours[peer]}"><path class="arrow{" dashed" if is_cut else ""}" '
            f'd="M{start + way * 5} {y + 3}H{end - way * 2}"/>{head}<text class="message" x="{x}" y="{y - 3}" '
            f'text-anchor="{"end" if is_caller else "start"}">{_text(row.message)}{count}{bytes}{reason}</text></g>'
        )

    def _bar(self, lane: str) -> None:
        """Draw the bar of an attempt, from its beginning to this row."""
        began = self._began.pop(lane, None)
        if began is not None and self._y > began:
            self._bars.append(
                f'<g class="{self._colours[lane]}"><rect class="act" x="{self._xs[lane] - 4}" y="{began}" width="8" '
                f'height="{self._y - began}" rx="2"/></g>'
            )


def _text(text: str) -> str:
    """Escape a text for SVG."""
    return escape(plain(text))


def _title(dialect: str) -> str:
    return DIALECTS[dialect].title if dialect in DIALECTS else dialect


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
