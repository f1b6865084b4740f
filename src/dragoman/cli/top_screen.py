"""The frames of `dragoman top`: lines of text from the model. Without I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from dragoman.cli.event_lines import duration
from dragoman.cli.tables import plain
from dragoman.cli.terminal import shortened
from dragoman.cli.top_format import (
    NONE,
    Column,
    Paint,
    fitted,
    plain_paint,
    quantile,
    quantiles,
    rate,
    share,
    sparkline,
    within,
)
from dragoman.cli.top_model import Model, Row

PATIENCE = 3.0  # seconds without a snapshot, after which the screen says so
MOST_ATTENTION = 5  # lines
MOST_BROKERS = 3  # names in a cell
KEYS = ("[s]ervices", "[w]orkers", "[j]obs", "[c]hanges")
LAST_KEYS = ("[?] keys", "[q]uit")  # they are always shown
ALL_KEYS = [
    "s w j c      services, workers, jobs, changes",
    "up down      select a row",
    "< >          sort by the order before or after",
    "/            filter: services by name, others by text; Enter keeps it, Escape removes it",
    "Enter        open: the jobs of a service, a job, a worker",
    "Escape       close what was opened last",
    "r            fetch the list of jobs again; it stands still otherwise",
    "p            pause or resume the selected service; asks first",
    "d            drain the selected worker; asks first",
    "q            quit",
]
EMPTY = {
    "services": "No worker offers a service, and no job is there for one. Start one: "
    "dragoman worker --exec 'tr a-z A-Z' --service shout",
    "workers": "There are no workers.",
    "jobs": "There are no jobs.",
    "changes": "Nothing has changed since the broker started.",
}

SERVICE_COLUMNS = (
    Column("SERVICE"),
    Column("WAITING", True),
    Column("OLDEST", True, 2),
    Column("JOBS/S", True),
    Column("5 MIN", False, 4),
    Column("WAIT P50/P95", True, 6),
    Column("RUN P50/P95", True, 5),
    Column("NOT DONE", True, 1),
    Column("SLOTS", True, 3),
)
WORKER_COLUMNS = (
    Column("WORKER"),
    Column("NAME"),
    Column("DIALECT", False, 2),
    Column("STATE"),
    Column("JOBS", True),
    Column("SILENT", True, 3),
    Column("SERVICES", False, 1),
)
JOB_COLUMNS = (
    Column("JOB"),
    Column("SERVICE"),
    Column("STATE"),
    Column("ATTEMPTS", True, 2),
    Column("AGE", True, 1),
    Column("REASON", False, 3),
)
CHANGE_COLUMNS = (Column("TIME"), Column("CHANGE"))


def frame(
    model: Model, now: float, clock: datetime, width: int, height: int | None = None, paint: Paint = plain_paint
) -> list[str]:
    """The lines of the screen. `now` is a monotonic time, `clock` the time of day. Without a `height` there are as many
    lines as needed, and no line of keys."""
    top = [*_head(model, clock, width, paint), *_problem(model, now, clock, width, paint)]
    top += _attention(model, width, paint)
    if height is None:
        return top + _body(model, clock, width, None, paint)
    room = max(2, height - len(top) - 1)
    body = _body(model, clock, width, room, paint)[:room]
    return [*top, *body, *[""] * (room - len(body)), _foot(model, width, paint)][:height]


def _head(model: Model, clock: datetime, width: int, paint: Paint) -> list[str]:
    parts = [f"dragoman {model.version}".rstrip()]
    if model.started is not None:
        parts.append(f"up {duration((clock - model.started).total_seconds())}")
    snapshot = model.snapshot
    if snapshot is None:
        return [paint("bold", "  ".join(parts))]
    state = "ready" if snapshot["ready"] else "not ready"
    numbers = []
    if brokers := snapshot.get("brokers"):
        numbers.append("1 broker" if len(brokers) == 1 else f"{len(brokers)} brokers")
    if totals := snapshot.get("totals"):
        numbers += [
            f"{rate(totals['done'])} done/s",
            f"{totals['waiting']:,} waiting",
            f"{totals['running']:,}/{totals['slots']:,} slots",
            f"{rate(sum(totals['undone'].values()))} not done/s",
        ]
    if broker := snapshot.get("broker"):
        busiest = "busiest " if len(brokers or ()) > 1 else ""
        numbers.append(f"{busiest}CPU {broker['cpu']:.0%}".replace("%", " %"))
        numbers.append(f"lag {quantile(broker['lag_p99'])}")
    text = within(["  ".join([*parts, state]), *numbers], width)
    painted = [text.replace(state, paint(state, state), 1)]
    if silent := snapshot.get("unanswered"):
        verb = "does" if len(silent) == 1 else "do"
        text = f"! {plain(', '.join(silent))} {verb} not answer: the numbers are those of the other brokers"
        painted.append(paint("not ready", shortened(text, width)))
    return painted + [paint("not ready", shortened(f"! {plain(each)}", width)) for each in snapshot["problems"]]


def _problem(model: Model, now: float, clock: datetime, width: int, paint: Paint) -> list[str]:
    if model.snapshot is None:
        text = f"{model.problem}. Trying again." if model.problem else "Waiting for the first snapshot."
        return [paint("paused", shortened(plain(text), width))]
    silent = now - model.seen
    if silent < PATIENCE:
        return []
    at = datetime.fromisoformat(model.snapshot["at"]).astimezone(clock.tzinfo)
    text = f"The broker has not answered for {silent:.0f} s. These values are of {at:%H:%M:%S}. Trying again."
    return [paint("not ready", shortened(text, width))]


def _attention(model: Model, width: int, paint: Paint) -> list[str]:
    if model.snapshot is None:
        return []
    found = model.snapshot["attention"]
    names = [str(next(iter(each["about"].values()), "")) if each["about"] else "" for each in found]
    room = max((len(name) for name in names[:MOST_ATTENTION]), default=0)
    lines = []
    for name, each in zip(names[:MOST_ATTENTION], found, strict=False):
        text = shortened(f"! {plain(name).ljust(room)}  {_named(each)}", width)
        lines.append(paint("failed" if each["level"] in ("critical", "error") else "paused", text))
    if len(found) > MOST_ATTENTION:
        lines.append(f"  … and {len(found) - MOST_ATTENTION} more")
    return lines


def _named(each: Row) -> str:
    """The sentence; with the broker of the cluster, if one alone has reported it."""
    brokers: Sequence[str] = each.get("brokers") or ()
    return plain(f"{brokers[0]}: {each['text']}" if len(brokers) == 1 else each["text"])


def _body(model: Model, clock: datetime, width: int, room: int | None, paint: Paint) -> list[str]:
    if model.shows_keys:
        return ["", *ALL_KEYS]
    if model.detail:
        return ["", *(shortened(plain(line), width) for line in model.detail)]
    rows = model.visible()
    if not rows:
        if model.snapshot is None:
            return []
        return [f"Nothing matches {plain(model.text)!r}." if model.text else shortened(EMPTY[model.page], width)]
    columns, cells = columns_of(model), TABLES[model.page][1]
    selected = model.selected
    first = 0 if room is None else max(0, selected - (room - 2))
    shown = rows[first:] if room is None else rows[first : first + room - 1]
    titles, *lines = fitted(columns, [cells(model, row, clock) for row in shown], width)
    if room is not None:
        lines[selected - first] = paint("selected", lines[selected - first].ljust(width))
    return [paint("bold", titles), *lines]


def _brokers(model: Model, row: Row) -> list[str]:
    """The cell with the brokers of a row; none without a cluster."""
    if not is_cluster(model):
        return []
    brokers: Sequence[str] = row.get("brokers") or ()
    more = f" + {len(brokers) - MOST_BROKERS}" if len(brokers) > MOST_BROKERS else ""
    return [", ".join(brokers[:MOST_BROKERS]) + more or row.get("broker") or ""]


def is_cluster(model: Model) -> bool:
    return model.snapshot is not None and bool(model.snapshot.get("brokers"))


def columns_of(model: Model) -> Sequence[Column]:
    """The columns of this page; those of a cluster have one for brokers."""
    columns, place = TABLES[model.page][0], BROKER_PLACES.get(model.page)
    if place is None or not is_cluster(model):
        return columns
    return [*columns[:place], Column("BROKER", False, 2), *columns[place:]]


def _service_cells(model: Model, row: Row, clock: datetime) -> list[str]:
    return [
        f"{row['name']} (paused)" if row["paused"] else row["name"],
        *_brokers(model, row),
        f"{row['waiting']:,}",
        duration(row["oldest"]) if row["waiting"] else "",
        rate(row["done"]),
        sparkline(model.points(row["name"])),
        quantiles(row["wait"]),
        quantiles(row["run"]),
        share(row["undone"], row["done"] + row["undone"]),
        f"{row['running']:,}/{row['slots']:,}",
    ]


def _worker_cells(model: Model, row: Row, clock: datetime) -> list[str]:
    return [
        str(row["id"]),
        row["name"],
        *_brokers(model, row),
        row["dialect"],
        row["state"],
        f"{len(row['running'])}/{row['capacity']}",
        duration(row["silent"]),
        ", ".join(row["services"]),
    ]


def _job_cells(model: Model, row: Row, clock: datetime) -> list[str]:
    age = (clock - datetime.fromisoformat(row["created"])).total_seconds()
    attempts = f"{len(row['attempts'])}/{row['max_attempts'] or NONE}"
    state = row["outcome"] or row["state"]
    cells = [row["id"][:12], row["service"], *_brokers(model, row), state, attempts]
    return [*cells, duration(max(0.0, age)), row["reason"]]


def _change_cells(model: Model, row: Row, clock: datetime) -> list[str]:
    return [f"{datetime.fromisoformat(row['at']).astimezone(clock.tzinfo):%H:%M:%S}", _named(row)]


Cells = Callable[[Model, Row, datetime], list[str]]
TABLES: dict[str, tuple[Sequence[Column], Cells]] = {
    "services": (SERVICE_COLUMNS, _service_cells),
    "workers": (WORKER_COLUMNS, _worker_cells),
    "jobs": (JOB_COLUMNS, _job_cells),
    "changes": (CHANGE_COLUMNS, _change_cells),
}


BROKER_PLACES = {"services": 1, "workers": 2, "jobs": 2}  # place of the column with brokers


def _foot(model: Model, width: int, paint: Paint) -> str:
    if model.act is not None:
        return paint("paused", shortened(f"{plain(model.act.question)} [y/N]", width))
    if model.is_typing:
        return shortened(f"/{plain(model.text)}_", width)
    if model.message:
        return shortened(plain(model.message), width)
    parts = [*KEYS]
    if model.page == "services":
        parts.append("[p]ause")
    elif model.page == "workers":
        parts.append("[d]rain")
    elif model.page == "jobs":
        parts.append("[r]efresh")
    parts += ["[/] filter", "[Enter] open"]
    if model.sort:
        parts.append(f"sort [<] {model.sort} [>]")
    if model.service is not None:
        parts.insert(0, f"service {plain(model.service)}")
    if model.text:
        parts.insert(0, f"filter {plain(model.text)!r}")
    return within(parts, width, LAST_KEYS, ("   ", " "))
