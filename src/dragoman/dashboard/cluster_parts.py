"""The parts of other brokers of the cluster in the snapshots for the readers at this one.

While a reader watches, each other broker is asked once a second for everything that readers here want to see. It
applies the rights of each principal by its own access table. An answer that is lost is replaced by the next one, so
nothing is repeated. A broker without an answer for three seconds is named as missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from dragoman.dashboard.says import says
from dragoman.dashboard.snapshot import ClusterFacts
from dragoman.operations.dashboard_schemas import PageView, SnapshotView
from dragoman.operations.merged_dashboard import merge_pages, merge_snapshots

LATE: Final = 3.0  # seconds after which a part is not shown any more, and its broker is asked again
MOST_ASKED: Final = 8  # questions whose answers are accepted

Wanted = tuple[str, str]  # a principal, and the service of its snapshot (empty: all) or its page

_snapshots: Final = msgspec.json.Decoder(SnapshotView)
_pages: Final = msgspec.json.Decoder(PageView | None)


class Cluster(ClusterFacts, Protocol):
    """The other brokers."""

    def heard(self) -> Sequence[str]:
        """Return the brokers that can be asked now."""

    def unheard(self) -> Sequence[str]:
        """Return the brokers that belong to the cluster and cannot be asked."""

    def look(self, broker: str, number: int, snapshots: list[Wanted], pages: list[Wanted]) -> bool:
        """Ask a broker. Returns False if it does not read."""


class Part:
    """The last answer of one broker."""

    __slots__ = ("at", "pages", "snapshots")

    def __init__(self, at: float, snapshots: dict[Wanted, SnapshotView], pages: dict[Wanted, PageView | None]) -> None:
        self.at = at
        self.snapshots = snapshots
        self.pages = pages


class ClusterParts:
    """Asks, keeps the answers, and merges them with the part of this broker."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._number = 0
        self._asked: dict[int, tuple[list[Wanted], list[Wanted]]] = {}
        self._open: dict[str, tuple[int, float]] = {}  # number and time of the open question, by broker
        self._parts: dict[str, Part] = {}

    def has(self, snapshots: list[Wanted], pages: list[Wanted], now: float) -> bool:
        """True if all brokers have answered all of this lately."""
        return not self._open and all(
            (part := self._parts.get(broker)) is not None
            and now - part.at < LATE
            and all(each in part.snapshots for each in snapshots)
            and all(each in part.pages for each in pages)
            for broker in self.cluster.heard()
        )

    def look(self, snapshots: list[Wanted], pages: list[Wanted], now: float, is_new: bool = False) -> None:
        """Ask every other broker, except those whose answer to the last question is not late. `is_new`: more is wanted
        than before, so open questions are replaced."""
        self._number += 1
        self._asked[self._number] = snapshots, pages
        while len(self._asked) > MOST_ASKED:
            del self._asked[next(iter(self._asked))]
        heard = self.cluster.heard()
        if is_new:
            self._open.clear()
        self._open = {name: each for name, each in self._open.items() if name in heard and now - each[1] < LATE}
        for broker in heard:
            if broker not in self._open and self.cluster.look(broker, self._number, snapshots, pages):
                self._open[broker] = self._number, now

    def received(self, broker: str, number: int, snapshots: list[bytes], pages: list[bytes], now: float) -> None:
        """Take the answer of a broker. One that this release cannot read counts as none."""
        if self._open.get(broker, (0, 0.0))[0] != number:
            return
        del self._open[broker]
        wanted_snapshots, wanted_pages = self._asked.get(number, ([], []))
        try:
            self._parts[broker] = Part(
                now,
                dict(zip(wanted_snapshots, map(_snapshots.decode, snapshots), strict=False)),
                dict(zip(wanted_pages, map(_pages.decode, pages), strict=False)),
            )
        except msgspec.DecodeError:
            self._parts.pop(broker, None)

    @property
    def is_complete(self) -> bool:
        """True if every question is answered."""
        return not self._open

    def clear(self) -> None:
        """Forget all parts: nobody watches any more."""
        self._open.clear()
        self._parts.clear()

    def snapshot(self, own: SnapshotView, wanted: Wanted, now: float) -> SnapshotView:
        """Return the snapshot of all brokers that a principal may see."""
        found = {self.cluster.name: own}
        missing = dict.fromkeys(self.cluster.unheard())
        for broker in sorted(self.cluster.heard()):
            part = self._parts.get(broker)
            view = part.snapshots.get(wanted) if part is not None and now - part.at < LATE else None
            if view is None:
                missing[broker] = None
            else:
                found[broker] = view
        merged = merge_snapshots(found, now)
        merged.unanswered = sorted({*missing, *(merged.unanswered or ())})
        return merged

    def page(self, own: PageView | None, wanted: Wanted, now: float) -> PageView | None:
        """Return the part of a page: that of the broker which has the job or worker, or of all brokers together."""
        found: dict[str, PageView | None] = {self.cluster.name: own}
        for broker in sorted(self.cluster.heard()):
            part = self._parts.get(broker)
            if part is not None and now - part.at < LATE:
                found[broker] = part.pages.get(wanted)
        page = merge_pages(found, now)
        if page is not None and page.service is not None:
            page.says = says(page.service, page.states or {})
        return page
