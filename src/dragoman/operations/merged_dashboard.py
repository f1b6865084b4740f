"""Merges the dashboards of several brokers of a cluster into one: snapshots, overviews, series of services.

Numbers of brokers are added, because each counts only its own jobs and workers. A quantile is the highest of all
brokers: that of all jobs together cannot be known from them. Steps of series begin at different moments, because each
broker has its own clock; a value is added to the step that is nearest to its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import asdict, replace

from dragoman.operations.dashboard_schemas import (
    AttentionView,
    BrokerNumbersView,
    ChangeView,
    FlowRow,
    MarkView,
    Number,
    Numbers,
    OverviewSeriesView,
    OverviewView,
    PageView,
    QuantilesView,
    ReasonView,
    SeriesView,
    ServiceRatesView,
    SnapshotBrokerView,
    SnapshotView,
    TotalSeriesView,
    TotalsView,
)
from dragoman.operations.merged_services import Parts, added, merge_service
from dragoman.operations.schemas import ServiceView
from dragoman.operations.service_views import CLUSTER

MOST_SERVICES: Final = 60  # as in the snapshot of one broker (dashboard/sampler.py)
MOST_CHANGES: Final = 50
MOST_MARKS: Final = 30
MOST_ATTENTION: Final = 20
MOST_REASONS: Final = 50
SHARED: Final = ("service paused", "service resumed", "broker joined", "broker left")  # changes that all brokers notice
FOLD: Final = 5.0  # seconds in which such a change at several brokers is one
LEVELS: Final = ("error", "warning", "info")
MOST_NAMES: Final = 3  # of brokers in a sentence
HELD: Final = 2  # steps for which the last value of a broker stands: it may have sampled a moment earlier

Joined = Callable[[Iterable[Number]], Number]


# ---------------------------------------------------------------- snapshots


def merge_snapshots(parts: Parts, now: float) -> SnapshotView:
    """Merge snapshots by broker, that of the broker which merges first. Numbers of a broker at which the principal may
    not see all services are not known: it counts as one that has not answered."""
    own, *_ = views = list(parts.values())
    is_whole = own.totals is not None and own.broker is not None
    whole = [each for each in views if each.totals is not None and each.broker is not None]
    hidden = [name for name, each in parts.items() if is_whole and each.totals is None]
    attention = _merged_attention(parts)
    return SnapshotView(
        instance=own.instance,
        seq=own.seq,
        at=own.at,
        ready=own.ready,
        problems=own.problems,
        totals=_merged_totals(whole, _service_count(whole)) if is_whole else None,
        broker=_merged_numbers([each.broker for each in whole]) if is_whole else None,
        attention=attention[:MOST_ATTENTION],
        services=_merged_rows(parts, attention, now),
        flow=merged_flow([each.flow for each in whole]) if is_whole else [],
        changes=_merged_changes(parts),
        brokers=_merged_brokers(parts, own),
        unanswered=hidden,
    )


def _merged_brokers(parts: Parts, own: SnapshotView) -> list[SnapshotBrokerView]:
    rows = [replace(row, here=part is own) for part in parts.values() for row in part.brokers or []]
    return sorted(rows, key=lambda row: row.name)


def _merged_totals(views: list[SnapshotView], services: int) -> TotalsView:
    sums: dict[str, Any] = {}
    for totals in [each.totals for each in views if each.totals is not None]:
        for name, value in asdict(totals).items():
            sums[name] = added((sums.get(name, {}), value)) if isinstance(value, dict) else sums.get(name, 0) + value
    sums["undone"] = {name: round(rate, 3) for name, rate in sums["undone"].items()}
    sums["arrived"], sums["done"] = round(sums["arrived"], 3), round(sums["done"], 3)
    return TotalsView(**{**sums, "services": services})


def _service_count(views: list[SnapshotView]) -> int:
    """Return the number of services, of which several brokers may know the same."""
    names = dict.fromkeys(row.name for each in views for row in each.services)
    return max(len(names), *(each.totals.services for each in views if each.totals is not None))


def _merged_numbers(numbers: Iterable[BrokerNumbersView | None]) -> BrokerNumbersView:
    known = [each for each in numbers if each is not None]
    return BrokerNumbersView(
        cpu=max(each.cpu for each in known),
        dashboard=max(each.dashboard for each in known),
        lag_p99=highest(each.lag_p99 for each in known),
        commit_p99=highest(each.commit_p99 for each in known),
        resident=max((each.resident for each in known if each.resident is not None), default=None),
        peers=sum(each.peers for each in known),
    )


def _merged_rows(parts: Parts, attention: list[AttentionView], now: float) -> list[ServiceView]:
    """Return the services that need attention first: those that a sentence names, then by their need."""
    found: dict[str, dict[str, ServiceView]] = {}
    for broker, part in parts.items():
        for row in part.services:
            found.setdefault(row.name, {})[broker] = row
    rows = [merge_service(None, views, now) for views in found.values()]
    named = {each.about.service for each in attention}
    rows.sort(key=lambda row: (row.name not in named, -row.need, row.name))
    return rows[:MOST_SERVICES]


def merged_flow(flows: Iterable[list[FlowRow]]) -> list[FlowRow]:
    """Add the pairs of dialects. A job that ran at another broker is in two pairs: from its caller to the cluster, and
    from the cluster to its worker. They are joined by their shares, because nobody knows which belong together."""
    cells: dict[tuple[str, str], tuple[float, float]] = {}
    for rows in flows:
        for caller, worker, jobs, mean in rows:
            _add_cell(cells, caller, worker, jobs, mean * jobs)
    sent = {caller: cell for (caller, worker), cell in cells.items() if worker == CLUSTER and caller != CLUSTER}
    taken = {worker: cell for (caller, worker), cell in cells.items() if caller == CLUSTER and worker != CLUSTER}
    ran = sum(jobs for jobs, _ in taken.values())
    joined = {pair: cell for pair, cell in cells.items() if CLUSTER not in pair}
    for caller, (jobs, spent) in sent.items():
        if not ran:  # they have ended at brokers that did not answer, or that count them in a moment
            _add_cell(joined, caller, CLUSTER, jobs, spent)
        for worker, (count, more) in taken.items() if ran else ():
            share = count / ran
            _add_cell(joined, caller, worker, jobs * share, spent * share + more / count * jobs * share)
    found = [(*pair, round(jobs, 3), round(spent / jobs, 6)) for pair, (jobs, spent) in joined.items() if jobs]
    return sorted(found, key=lambda row: -row[2])


def _add_cell(cells: dict[tuple[str, str], tuple[float, float]], a: str, b: str, jobs: float, spent: float) -> None:
    before, spent_before = cells.get((a, b), (0.0, 0.0))
    cells[a, b] = before + jobs, spent_before + spent


# ---------------------------------------------------------------- sentences


def _merged_attention(parts: Parts) -> list[AttentionView]:
    """Return the findings of all brokers, worst first. Those of several brokers about the same are one: the sentence of
    the broker that has it longest, and the names of the others."""
    found: dict[tuple[str, str], list[tuple[AttentionView, str]]] = {}
    for broker, part in parts.items():
        for each in part.attention:
            found.setdefault((each.kind, repr(each.about)), []).append((each, broker))
    merged = [_one_finding(sorted(each, key=lambda pair: _severity(pair[0]))) for each in found.values()]
    return sorted(merged, key=_severity)


def _severity(finding: AttentionView) -> tuple[int, float]:
    return LEVELS.index(finding.level), finding.since.timestamp()


def _one_finding(findings: list[tuple[AttentionView, str]]) -> AttentionView:
    (first, broker), *_ = findings
    brokers = list(dict.fromkeys(name for _, name in findings))
    text = first.text
    if len(brokers) > 1:
        others = sorted(brokers[1:])
        more = f" and {len(others) - MOST_NAMES} more" if len(others) > MOST_NAMES else ""
        text = f"At {broker}: {text} Likewise at {', '.join(others[:MOST_NAMES])}{more}."
    return replace(first, text=text, brokers=brokers)


def _merged_changes(parts: Parts) -> list[ChangeView]:
    """Return the latest changes of all brokers, newest first."""
    rows = [replace(each, brokers=[broker]) for broker, part in parts.items() for each in part.changes]
    return _folded(rows)[:MOST_CHANGES]


def _merged_marks(parts: Mapping[str, list[MarkView]]) -> list[MarkView]:
    rows = [replace(each, brokers=[broker]) for broker, marks in parts.items() for each in marks]
    return _folded(rows)[:MOST_MARKS][::-1]


def _folded(rows: list[Any]) -> list[Any]:
    """Sort changes or marks by time, newest first. What all brokers notice within a moment is one."""
    rows.sort(key=lambda each: each.at.timestamp(), reverse=True)
    kept: list[Any] = []
    last: dict[str, Any] = {}
    for each in rows:
        known = last.get(each.text) if each.kind in SHARED else None
        if known is None or (known.at - each.at).total_seconds() > FOLD or each.brokers[0] in known.brokers:
            last[each.text] = each
            kept.append(each)
        else:
            known.brokers = sorted([*known.brokers, *each.brokers])
    return kept


# ---------------------------------------------------------------- pages


def merge_pages(pages: Mapping[str, PageView | None], now: float) -> PageView | None:
    """Merge the parts of one page by broker, that of the broker which merges first. A job or a worker is at one broker.
    A merged page of a service has no sentence: it must be made anew, from its row and its `states`."""
    found = {broker: page for broker, page in pages.items() if page is not None}
    if not found:
        return None
    services = {broker: page for broker, page in found.items() if page.service is not None}
    if not services:
        return next(iter(found.values()))
    views = list(services.values())
    page = PageView(service=merge_service(None, {name: each.service for name, each in services.items()}, now))
    page.states = added(each.states or {} for each in views)
    if any(each.callers is not None for each in views):  # a broker without recorded jobs has none
        page.callers = added(each.callers or {} for each in views)
        page.reasons = _merged_reasons(reason for each in views for reason in each.reasons or [])
    return page


def _merged_reasons(reasons: Iterable[ReasonView]) -> list[ReasonView]:
    found: dict[tuple[str, str], ReasonView] = {}
    for each in reasons:
        known = found.get((each.outcome, each.reason))
        if known is None:
            found[each.outcome, each.reason] = each
        else:
            latest = each if each.last > known.last else known
            found[each.outcome, each.reason] = replace(latest, count=known.count + each.count)
    return sorted(found.values(), key=lambda each: -each.count)[:MOST_REASONS]


# ---------------------------------------------------------------- series


def merge_overview(request: Any, parts: Parts, now: float) -> OverviewView:
    own: OverviewView = next(iter(parts.values()))
    snapshot = merge_snapshots(parts, now)
    series = {broker: part.series for broker, part in parts.items()}
    names = dict.fromkeys(row.name for row in snapshot.services)
    names.update((name, None) for each in series.values() for name in each.services if name in names or name == "other")
    services = {}
    for name in names:
        lines = [(each.begin, each.services[name].done) for each in series.values() if name in each.services]
        if lines:
            services[name] = ServiceRatesView(done=_joined(own.series, lines, total_of))
    totals = [(each.begin, each.total) for each in series.values() if each.total is not None]
    merged = OverviewSeriesView(
        step=own.series.step,
        begin=own.series.begin,
        total=_joined_fields(own.series, totals, TotalSeriesView) if own.series.total is not None else None,
        services=services,
        marks=_merged_marks({broker: each.marks for broker, each in series.items()}),
    )
    fields = {name: getattr(snapshot, name) for name in SnapshotView.__struct_fields__}
    return OverviewView(**fields, series=merged)


def merge_series(request: Any, parts: Parts, now: float) -> SeriesView:
    views: list[SeriesView] = list(parts.values())
    own = views[0]
    return SeriesView(
        step=own.step,
        begin=own.begin,
        **{
            name: _joined(own, [(each.begin, getattr(each, name)) for each in views], total_of)
            for name in ("arrived", "done", "undone", "waiting", "running")
        },
        wait=_joined_fields(own, [(each.begin, each.wait) for each in views], QuantilesView),
        run=_joined_fields(own, [(each.begin, each.run) for each in views], QuantilesView),
        marks=_merged_marks({broker: each.marks for broker, each in parts.items()}),
        unanswered=UNSET,
    )


def _joined_fields(axis: SeriesView | OverviewSeriesView, views: list[tuple[datetime, Any]], kind: type[Any]) -> Any:
    """Join each line of these views. A line of quantiles has the highest of each step, any other one the sum."""
    lines = {}
    for name in kind.__struct_fields__:
        join = highest if kind is QuantilesView or name == "wait95" else total_of
        lines[name] = _joined(axis, [(begin, getattr(view, name)) for begin, view in views], join)
    return kind(**lines)


def _joined(axis: SeriesView | OverviewSeriesView, lines: list[tuple[datetime, Numbers]], join: Joined) -> Numbers:
    """Put the values of several lines into the steps of one axis. Each line begins at its own time."""
    aligned = []
    for begin, values in lines:
        shift = round((axis.begin - begin).total_seconds() / axis.step)
        aligned.append(_shifted(values, shift))
    return [join(column) for column in zip(*aligned, strict=True)]


def _shifted(values: Numbers, shift: int) -> Numbers:
    """Return as many values, from the step of this number on. Before the first one nothing is known."""
    count = len(values)
    known = values[max(0, shift) :]
    line: Numbers = [*([None] * min(count, max(0, -shift))), *known][:count]
    if 0 < shift <= HELD and values:
        line += [values[-1]] * shift
    return line + [None] * (count - len(line))


def total_of(numbers: Iterable[Number]) -> Number:
    """Return the sum of the known numbers; None if none is known."""
    known = [each for each in numbers if each is not None]
    return round(sum(known), 3) if known else None


def highest(numbers: Iterable[Number]) -> Number:
    return max((each for each in numbers if each is not None), default=None)
