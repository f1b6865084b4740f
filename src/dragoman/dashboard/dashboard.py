"""The dashboard: samples the broker every 2 seconds, and sends a snapshot each second while a reader watches.

Everything is aggregated once for all readers, and encoded once for all readers with the same rights. Nothing in a
snapshot is made for each job or each worker. The work is done in slices of at most 5 ms, and its share of the processor
is part of the snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import Final, Protocol

import msgspec

from dragoman.core.rights import Principal, Rights
from dragoman.dashboard.changes import KINDS, STARTED, Changes
from dragoman.dashboard.gathering import gather
from dragoman.dashboard.history import RANGES, SLOT, VALUES, History
from dragoman.dashboard.pages import Page, Pages
from dragoman.dashboard.rules import findings
from dragoman.dashboard.sampler import MAX_SERIES
from dragoman.dashboard.snapshot import Snapshots, Sources
from dragoman.operations.dashboard_schemas import (
    OverviewSeriesView,
    OverviewView,
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
        self._encoded: dict[tuple[Rights | None, str | None], bytes] = {}
        self._task: asyncio.Task[None] | None = None
        sources.broker.events.subscribe(KINDS, sources.changes.receive)
        sources.changes.add(STARTED, clock())

    @property
    def is_watched(self) -> bool:
        return bool(self._watches)

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
        self._sources.quarantine.sample(now, self._sources.broker.job_registry.is_loading)
        self._sources.attention.update(findings(gather(self._sources, now)), now)

    # ---------------------------------------------------------------- readers

    def watch(self, reader: Reader, principal: Principal, page: Page) -> None:
        """Send snapshots to a reader from now on, the first one at once."""
        self._sources.sampler.recount(self._clock())
        if not self._watches:  # no snapshot was made for a while
            self._renew()
        watch = Watch(reader, principal, page)
        self._watches[reader] = watch
        self._send(watch, self._clock())

    def leave(self, reader: Reader) -> None:
        self._watches.pop(reader, None)

    def publish(self, now: float) -> Iterator[None]:
        """Send a new snapshot to all readers. Yields after each."""
        self._renew()
        for watch in list(self._watches.values()):
            self._send(watch, now)
            yield

    def _renew(self) -> None:
        """Begin the next snapshot."""
        self._snapshots.number += 1
        self._encoded.clear()

    def _send(self, watch: Watch, now: float) -> None:
        principal, page = watch.principal, watch.page
        key = (None if may_see_all(principal) else principal.rights, page.service)
        body = self._encoded.get(key)
        if body is None:
            body = msgspec.json.encode(self._snapshots.view(principal, now, page.service))
            assert body.endswith(PAGE_END)
            body = self._encoded[key] = body[: -len(PAGE_END)]
        part = self._pages.view(page, principal, now)
        watch.reader.replace(EVENT, b"%b%b}" % (body, msgspec.json.encode(part)))

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
            **{name: found[name] for name in ("arrived", "done", "undone", "waiting", "running")},
            wait=QuantilesView(p50=found["wait50"], p95=found["wait95"], p99=found["wait99"]),
            run=QuantilesView(p50=found["run50"], p95=found["run95"], p99=found["run99"]),
            marks=self._snapshots.marks(principal, begin, service),
        )

    def _axis(self, range_name: str) -> tuple[float, float]:
        """Return the seconds of a step, and the time at which the first one begins."""
        steps, slots = RANGES[range_name]
        return slots * SLOT, (self._sources.sampler.slot // slots - steps + 1) * slots * SLOT
