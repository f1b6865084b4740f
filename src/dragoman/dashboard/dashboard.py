"""The dashboard: samples the broker every 2 seconds, and sends a snapshot each second while a reader watches.

Everything is aggregated once for all readers, and encoded once for all readers with the same rights. Nothing in a
snapshot is made for each job or each worker. The work is done in slices of at most 5 ms, and its share of the processor
is part of the snapshot.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import Final, Protocol

import msgspec

from dragoman.core.infinity import inf
from dragoman.core.rights import Principal, Rights
from dragoman.dashboard.changes import BROKER_JOINED, BROKER_LEFT, KINDS, STARTED, Changes
from dragoman.dashboard.cluster_parts import Cluster, ClusterParts, Wanted
from dragoman.dashboard.gathering import gather
from dragoman.dashboard.history import RANGES, SLOT, VALUES, History
from dragoman.dashboard.pages import Page, Pages, page_of
from dragoman.dashboard.rules import findings
from dragoman.dashboard.sampler import MAX_SERIES
from dragoman.dashboard.snapshot import Snapshots, Sources
from dragoman.operations.dashboard_schemas import (
    OverviewSeriesView,
    OverviewView,
    PageView,
    QuantilesView,
    SeriesView,
    ServiceRatesView,
    TotalSeriesView,
)
from dragoman.operations.schemas import OperationError
from dragoman.operations.views import moment
from dragoman.operations.visibility import may_see_all

SLICE: Final = 0.005  # seconds of work between two iterations of the event loop
INTERVAL: Final = 1.0  # seconds between two snapshots while a reader watches
EARLY: Final = 0.05  # seconds
PAGE_END: Final = b"null}"  # end of a snapshot without the part for its page
EVENT: Final = "snapshot"
PATIENCE: Final = 0.3  # seconds for which a snapshot waits for the parts of other brokers
FRESH: Final = 0.5  # seconds for which a snapshot is given to several brokers
SETTLE: Final = 10.0  # seconds after its start in which a broker hears of the others
WATCHED: Final = 3.0  # seconds after a question of another broker for which readers watch there
PART_SERVICES: Final = 250  # services in the part of one broker: the sums of 60 are shown
OTHER: Final = "other"  # all services without a history of their own


class Reader(Protocol):
    """An event stream. `replace` publishes an event in the place of one that is not sent yet."""

    def replace(self, event: str, data: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class Watch:
    """A reader with its principal and its page."""

    reader: Reader
    principal: Principal
    page: Page


class Dashboard:
    """The data of dashboards for one broker. `report` receives unexpected errors."""

    def __init__(
        self,
        sources: Sources,
        clock: Callable[[], float],
        report: Callable[[BaseException], None],
    ) -> None:
        self._sources = sources
        self._clock = clock
        self._report = report
        self._snapshots = Snapshots(sources)
        self._pages = Pages(sources, self._snapshots)
        self._watches: dict[Reader, Watch] = {}
        self._encoded: dict[tuple[Rights | str | None, str | None], bytes] = {}
        self._parts: ClusterParts | None = None  # in a cluster
        self._new: dict[Reader, Watch] = {}  # readers that wait for the parts of other brokers
        self._complete = asyncio.Event()  # all brokers have answered
        self._shown: dict[tuple[Rights | None, str], tuple[float, bytes]] = {}  # for other brokers, with its time
        self._shown_at = -inf
        self._brokers: list[str] = []  # of the cluster, at the last sample
        self._joined_at = inf
        self._task: asyncio.Task[None] | None = None
        sources.broker.events.subscribe(KINDS, sources.changes.receive)
        sources.changes.add(STARTED, clock())

    def join(self, cluster: Cluster) -> None:
        """Show the whole cluster, and leave out of this broker's part what other brokers count."""
        self._parts = ClusterParts(cluster)
        self._snapshots.cluster = cluster
        self._sources.load.others = self._sources.sampler.others = cluster
        self._sources.sampler.most_services = PART_SERVICES
        self._joined_at = self._clock()

    @property
    def is_watched(self) -> bool:
        """True if a reader watches, here or at another broker."""
        return bool(self._watches) or self._clock() - self._shown_at < WATCHED

    @property
    def instance(self) -> str:
        """Random id of this run of the broker."""
        return self._sources.instance

    @property
    def changes(self) -> Changes:
        return self._sources.changes

    # ---------------------------------------------------------------- time

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sample until `close`."""
        self._task = loop.create_task(self._run())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        is_due = True
        while True:
            try:
                if is_due:
                    await self._in_slices(self.sample(self._clock()))
                if self._watches:
                    await self._gather_parts()
                    await self._in_slices(self.publish(self._clock()))
            except Exception as error:
                self._report(error)
            now = self._clock()
            interval = INTERVAL if self._watches else SLOT
            wait = interval - now % interval
            if wait < EARLY:  # the timer was a moment early
                wait += interval
            is_due = (now + wait) % SLOT < INTERVAL / 2
            await asyncio.sleep(wait)

    async def _gather_parts(self) -> None:
        """In a cluster, ask the other brokers for their parts, and wait a moment for them."""
        if self._parts is not None:
            self.look(self._clock())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._complete.wait(), PATIENCE)

    async def _in_slices(self, steps: Iterator[None]) -> None:
        """Do this work in slices of at most 5 ms, and count its processor time."""
        began, used = perf_counter(), thread_time()
        for _ in steps:
            if perf_counter() - began > SLICE:
                self._sources.load.spent += thread_time() - used
                await asyncio.sleep(0)
                began, used = perf_counter(), thread_time()
        self._sources.load.spent += thread_time() - used

    def sample(self, now: float) -> Iterator[None]:
        """Take a sample. Yields now and then, so that the caller can pause."""
        yield from self._sources.sampler.sample(now, is_watched=self.is_watched)
        self._sources.load.sample(now)
        self._sources.quarantine.sample(now, not self._sources.sampler.is_baseline)
        facts = gather(self._sources, now)
        if self._parts is not None:
            facts.unheard = self._note_brokers(self._parts.cluster, now)
        self._sources.attention.update(findings(facts), now)

    def _note_brokers(self, cluster: Cluster, now: float) -> list[str]:
        """Add the brokers that have joined or are gone to the changes. Returns those that are not heard."""
        unheard = list(cluster.unheard())
        known, self._brokers = self._brokers, sorted([*cluster.heard(), *unheard])
        has_settled = now >= self._joined_at + SETTLE  # before that, this broker has joined, not the others
        for name in self._brokers:
            if name not in known and has_settled:
                self.changes.add(BROKER_JOINED, now, detail=name)
        for name in known:
            if name not in self._brokers:
                self.changes.add(BROKER_LEFT, now, detail=name, level="warning")
        return unheard

    # ---------------------------------------------------------------- readers

    def watch(self, reader: Reader, principal: Principal, page: Page) -> None:
        """Send snapshots to a reader from now on. The first comes at once; in a cluster, with the parts of others."""
        self._sources.sampler.recount(self._clock())
        if not self._watches:  # no snapshot was made for a while
            self._renew()
        watch = Watch(reader, principal, page)
        self._watches[reader] = watch
        if self._parts is None:
            self._send(watch, self._clock())
            return
        self._new[reader] = watch
        self.look(self._clock(), is_new=True)

    def leave(self, reader: Reader) -> None:
        self._watches.pop(reader, None)
        self._new.pop(reader, None)
        if self._parts is not None and not self._watches:
            self._parts.clear()

    def publish(self, now: float) -> Iterator[None]:
        """Send a new snapshot to all readers. Yields after each."""
        self._renew()
        self._new.clear()
        for watch in list(self._watches.values()):
            self._send(watch, now)
            yield

    def _renew(self) -> None:
        """Begin the next snapshot."""
        self._snapshots.number += 1
        self._encoded.clear()

    def _send(self, watch: Watch, now: float) -> None:
        principal, page = watch.principal, watch.page
        parts, rights = self._parts, None if may_see_all(principal) else principal.rights
        key = (rights if parts is None else principal.name, page.service)  # other brokers may have other rights for it
        body = self._encoded.get(key)
        if body is None:
            view = self._snapshots.view(principal, now, page.service)
            if parts is not None:
                view = parts.snapshot(view, (principal.name, page.service or ""), now)
            body = msgspec.json.encode(view)
            assert body.endswith(PAGE_END)
            body = self._encoded[key] = body[: -len(PAGE_END)]
        part = self._pages.view(page, principal, now)
        if parts is not None:
            part = parts.page(part, (principal.name, page.text), now)
        watch.reader.replace(EVENT, b"%b%b}" % (body, msgspec.json.encode(part)))

    # ---------------------------------------------------------------- other brokers

    def look(self, now: float, is_new: bool = False) -> None:
        """Ask the other brokers of the cluster for what the readers here watch: one question to each. `is_new`: open
        questions are replaced, unless a new reader watches only what is known."""
        parts = self._parts
        assert parts is not None
        watches = list(self._watches.values())
        snapshots = dict.fromkeys((each.principal.name, each.page.service or "") for each in watches)
        pages = dict.fromkeys((each.principal.name, each.page.text) for each in watches if each.page.subject)
        self._complete.clear()
        if not is_new or not parts.has(list(snapshots), list(pages), now):
            parts.look(list(snapshots), list(pages), now, is_new)
        self._answered(now)

    def received(self, broker: str, number: int, snapshots: list[bytes], pages: list[bytes], now: float) -> None:
        """Take the answer of another broker."""
        assert self._parts is not None
        used = thread_time()
        self._parts.received(broker, number, snapshots, pages, now)
        self._answered(now)
        self._sources.load.spent += thread_time() - used

    def _answered(self, now: float) -> None:
        assert self._parts is not None
        if self._parts.is_complete:
            self._complete.set()
            new = list(self._new.values())
            self._new.clear()
            if new:
                self._renew()
            for watch in new:
                self._send(watch, now)

    def show(self, snapshots: list[Wanted], pages: list[Wanted], now: float) -> tuple[list[bytes], list[bytes]]:
        """Return the snapshots and parts of pages that readers at another broker watch, in JSON."""
        used = thread_time()
        self._shown_at = now
        self._sources.sampler.recount(now)
        named = self._sources.broker.principals.named
        shown = [self._show_snapshot(named(name), service, now) for name, service in snapshots]
        parts = [msgspec.json.encode(self._shown_page(text, named(name), now)) for name, text in pages]
        self._sources.load.spent += thread_time() - used
        return shown, parts

    def _show_snapshot(self, principal: Principal, service: str, now: float) -> bytes:
        key = (None if may_see_all(principal) else principal.rights, service)
        at, body = self._shown.get(key, (-inf, b""))
        if now - at >= FRESH:
            self._shown = {each: made for each, made in self._shown.items() if now - made[0] < FRESH}
            body = msgspec.json.encode(self._snapshots.view(principal, now, service or None))
            self._shown[key] = now, body
        return body

    def _shown_page(self, text: str, principal: Principal, now: float) -> PageView | None:
        try:
            return self._pages.view(page_of(text), principal, now)
        except ValueError:
            return None  # a broker of another release has more pages

    # ---------------------------------------------------------------- operations

    def overview(self, range_name: str, principal: Principal, now: float) -> OverviewView:
        """Return a snapshot with the series of all services together and of each service in it."""
        sampler, slot = self._sources.sampler, self._sources.sampler.slot
        sampler.recount(now)
        snapshot = self._snapshots.view(principal, now)
        names = ("arrived", "done", "undone", "waiting", "running", "wait95")
        total = None
        if may_see_all(principal):
            total = TotalSeriesView(**sampler.total_history.series(range_name, names, slot))
        services = {
            row.name: ServiceRatesView(**sampler.histories[row.name].series(range_name, ("done",), slot))
            for row in snapshot.services
            if row.name in sampler.histories
        }
        if total is not None and len(sampler.histories) >= MAX_SERIES:
            services[OTHER] = ServiceRatesView(**sampler.other_history.series(range_name, ("done",), slot))
        step, begin = self._axis(range_name)
        series = OverviewSeriesView(
            step=step,
            begin=moment(begin + self._sources.offset()),
            total=total,
            services=services,
            marks=self._snapshots.marks(principal, begin),
        )
        fields = {name: getattr(snapshot, name) for name in snapshot.__struct_fields__}
        return OverviewView(**fields, series=series)

    def series(self, service: str, range_name: str, principal: Principal, now: float) -> SeriesView:
        """Return the history of a service. Raises OperationError."""
        sampler, slot = self._sources.sampler, self._sources.sampler.slot
        history = sampler.histories.get(service)
        if history is None and service not in self._sources.broker.worker_registry.services:
            raise OperationError("not found", f"no service is called '{service}'; `services` lists all")
        found = (history or History(slot)).series(range_name, VALUES, slot)
        step, begin = self._axis(range_name)
        return SeriesView(
            step=step,
            begin=moment(begin + self._sources.offset()),
            arrived=found["arrived"],
            done=found["done"],
            undone=found["undone"],
            waiting=found["waiting"],
            running=found["running"],
            wait=QuantilesView(p50=found["wait50"], p95=found["wait95"], p99=found["wait99"]),
            run=QuantilesView(p50=found["run50"], p95=found["run95"], p99=found["run99"]),
            marks=self._snapshots.marks(principal, begin, service),
        )

    def _axis(self, range_name: str) -> tuple[float, float]:
        """Return the seconds of a step, and the time at which the first one begins."""
        steps, slots = RANGES[range_name]
        return slots * SLOT, (self._sources.sampler.slot // slots - steps + 1) * slots * SLOT
