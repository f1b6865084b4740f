"""The state of `dragoman top`: what is shown, what is selected, and the effect of each key. Without I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import quote

Row = Mapping[str, Any]

PAGES = {"s": "services", "w": "workers", "j": "jobs", "c": "changes"}
SORTS = {"services": ("need", "name", "waiting", "rate"), "workers": ("need", "slow", "silent", "name")}
POINTS = 150  # of a sparkline: five minutes
STEP = 2.0  # seconds between two points


@dataclass(frozen=True, slots=True)
class Act:
    """A request to the broker that the user has to confirm."""

    question: str
    path: str
    fields: Mapping[str, object]
    done: str  # the message after it


@dataclass(slots=True)
class Model:
    """Everything that the screen shows."""

    version: str = ""
    started: datetime | None = None
    snapshot: Row | None = None
    seen: float = 0.0  # monotonic time of the snapshot
    history: dict[str, deque[float | None]] = field(default_factory=dict)  # jobs done a second, by service
    page: str = "services"
    sorts: dict[str, int] = field(default_factory=dict)
    text: str = ""  # the filter
    service: str | None = None  # only jobs of this service
    rows: Sequence[Row] = ()  # of the pages that are fetched: workers, jobs
    detail: Sequence[str] = ()  # lines about an opened job or worker
    marked: object = None  # the key of the selected row: the selection stays with it when rows move
    is_typing: bool = False  # the filter is being typed
    shows_keys: bool = False
    act: Act | None = None
    message: str = ""
    problem: str = ""  # the stream is lost: the reason
    _sampled: float = -STEP

    # ---------------------------------------------------------------- data

    def take_series(self, services: Mapping[str, Mapping[str, Sequence[float | None]]]) -> None:
        """Start the sparklines with the history that the broker has."""
        self.history = {name: deque(series["done"], POINTS) for name, series in services.items()}

    def take_snapshot(self, snapshot: Row, now: float) -> bool:
        """Show a new snapshot. Returns True if it is the first of this broker: then its history must be fetched."""
        is_new = self.snapshot is None or self.snapshot["instance"] != snapshot["instance"]
        self.snapshot = snapshot
        self.seen = now
        self.problem = ""
        if now - self._sampled >= STEP:
            self._sampled = now
            for row in snapshot["services"]:
                self.history.setdefault(row["name"], deque(maxlen=POINTS)).append(row["done"])
        return is_new

    def points(self, service: str) -> list[float | None]:
        """Jobs done a second in the last five minutes; None where it is not known."""
        known = self.history.get(service, ())
        return [*[None] * (POINTS - len(known)), *known]

    def visible(self) -> list[Row]:
        """The rows of this page, filtered and sorted."""
        if self.snapshot is None:
            return []
        if self.page == "services":
            rows = [each for each in self.snapshot["services"] if self.text in each["name"]]
            keys = {
                "name": lambda row: row["name"],
                "waiting": lambda row: -row["waiting"],
                "rate": lambda row: -row["done"],
            }
            order = self.sort
            return sorted(rows, key=keys[order]) if order in keys else rows
        if self.page == "changes":
            return [each for each in self.snapshot["changes"] if self.text in each["text"]]
        return list(self.rows)

    @property
    def sort(self) -> str:
        """The order of this page; empty if it has only one."""
        orders = SORTS.get(self.page, ("",))
        return orders[self.sorts.get(self.page, 0) % len(orders)]

    @property
    def selected(self) -> int:
        """The number of the selected row: the first, if the one that was selected is gone."""
        return next((number for number, row in enumerate(self.visible()) if _key(row) == self.marked), 0)

    @property
    def chosen(self) -> Row | None:
        """The selected row."""
        rows = self.visible()
        return rows[self.selected] if rows else None

    # ---------------------------------------------------------------- keys

    def press(self, key: str) -> str:
        """Handle a key. Returns what the program must do: `quit`, `fetch` the rows, `open` the selected row, `act`; or
        nothing."""
        self.message = ""
        if self.act is not None:
            if key in ("y", "Y"):
                return "act"
            self.act = None
            return ""
        if self.is_typing:
            return self._type(key)
        if self.shows_keys:
            self.shows_keys = False
            if key in ("?", "escape"):
                return ""
        if key == "q":
            return "quit"
        if key in PAGES:
            self._turn_to(PAGES[key])
            return "fetch"
        if key in ("up", "down"):
            self._move(-1 if key == "up" else 1)
        elif key in ("<", ">") and self.page in SORTS:
            self.sorts[self.page] = self.sorts.get(self.page, 0) + (1 if key == ">" else -1)
            return "fetch"
        elif key == "/":
            self.is_typing = True
        elif key == "?":
            self.shows_keys = True
        elif key == "r":
            return "fetch"
        elif key == "escape":
            return self._leave()
        elif key == "enter":
            return self._enter()
        elif key == "p" and self.page == "services":
            self.act = _pause(self.chosen)
        elif key == "d" and self.page == "workers":
            self.act = _drain(self.chosen)
        return ""

    def _move(self, step: int) -> None:
        rows = self.visible()
        if rows:
            self.marked = _key(rows[max(0, min(self.selected + step, len(rows) - 1))])

    def _type(self, key: str) -> str:
        if key in ("enter", "escape"):
            self.is_typing = False
            self.text = self.text if key == "enter" else ""
        elif key == "backspace":
            self.text = self.text[:-1]
        elif len(key) == 1 and key.isprintable():
            self.text += key
        return "fetch"

    def _turn_to(self, page: str, service: str | None = None) -> None:
        self.page = page
        self.service = service
        self.rows, self.detail = (), ()
        self.text = ""
        self.marked = None

    def _enter(self) -> str:
        chosen = self.chosen
        if chosen is None or self.detail:
            return ""
        if self.page == "services":
            self._turn_to("jobs", chosen["name"])
            return "fetch"
        return "open" if self.page in ("workers", "jobs") else ""

    def _leave(self) -> str:
        """Close what was opened last: a job or worker, the filter, the jobs of one service."""
        if self.detail:
            self.detail = ()
        elif self.text:
            self.text = ""
        elif self.service is not None:
            self._turn_to("services")
        return "fetch"


def _key(row: Row) -> object:
    """The id of a job or a worker, the name of a service, the time and the text of a change."""
    return row.get("id") or row.get("name") or (row.get("at"), row.get("text"))


def _pause(service: Row | None) -> Act | None:
    if service is None:
        return None
    name, waiting = service["name"], service["waiting"]
    if service["paused"]:
        question = f"Resume {name}? {_jobs(waiting)} wait and are dispatched again."
        return Act(question, f"/v1/services/{_quoted(name)}/resume", {}, f"{name} is resumed.")
    question = f"Pause {name}? {_jobs(waiting)} wait and are not dispatched until it is resumed."
    return Act(question, f"/v1/services/{_quoted(name)}/pause", {"by": "dragoman top"}, f"{name} is paused.")


def _drain(worker: Row | None) -> Act | None:
    if worker is None:
        return None
    id, name = worker["id"], worker["name"]
    question = f"Drain worker {id} ({name})? It gets no more jobs, and finishes {_jobs(len(worker['running']))}."
    return Act(question, f"/v1/workers/{id}/drain", {}, f"Worker {id} is draining.")


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


def _quoted(name: str) -> str:
    return quote(name, safe="")
