"""A broker with its dashboard, on a clock that the test sets."""

from __future__ import annotations

import json
from typing import Any

from dragoman.core.model import Job
from dragoman.core.rights import NO_LIMITS, Principal, Rights
from dragoman.dashboard.pages import page_of
from dragoman.operations.dashboard_schemas import SnapshotView
from dragoman.operations.schemas import ServiceView
from dragoman.server.dashboard_source import make_dashboard
from scraped import Scraped, attempt_of

WALL = 1_000_000.0  # seconds that the wall clock is ahead


class RecordingReader:
    """An event stream that keeps the latest snapshot."""

    def __init__(self) -> None:
        self.received: list[bytes] = []

    def replace(self, event: str, data: bytes) -> None:
        assert event == "snapshot"
        self.received.append(data)

    @property
    def latest(self) -> dict[str, Any]:
        latest: dict[str, Any] = json.loads(self.received[-1])
        return latest


class World(Scraped):
    def __init__(self) -> None:
        super().__init__()
        self.errors: list[BaseException] = []
        self.dashboard = make_dashboard(self.runner, self.operations, self._health, lambda: WALL, lambda: self.now, 100)
        self.sources = self.dashboard._sources
        self.sampler = self.sources.sampler
        self.sample()

    def sample(self, after: float = 0.0) -> int:
        """Let time pass, with an iteration at every time at which something is due, and take a sample. Returns the
        number of its steps."""
        end = self.now + after
        while (due := self.runner.run_once()) < end:
            self.now = max(self.now, due)
        self.now = end
        self.runner.run_once()
        return sum(1 for _ in self.dashboard.sample(self.now))

    def samples(self, count: int) -> None:
        """Take samples, one every 2 seconds."""
        for _ in range(count):
            self.sample(2.0)

    def watch(self, page: str = "overview", principal: Principal | None = None) -> RecordingReader:
        reader = RecordingReader()
        self.dashboard.watch(reader, principal or self.broker.principals.local, page_of(page))
        return reader

    def publish(self) -> None:
        for _ in self.dashboard.publish(self.now):
            pass

    def principal(self, name: str, **rights: tuple[str, ...]) -> Principal:
        known = {each.name: (each.rights, NO_LIMITS) for each in self.broker.principals if each.is_listed}
        self.broker.principals.apply({**known, name: (Rights(**rights), NO_LIMITS)})
        return self.broker.principals.named(name)

    def snapshot(self, principal: Principal | None = None) -> SnapshotView:
        return self.dashboard._snapshots.view(principal or self.broker.principals.local, self.now)

    def row(self, name: str) -> ServiceView:
        (row,) = [each for each in self.snapshot().services if each.name == name]
        return row

    def attention(self) -> dict[str, str]:
        """Return the sentences that are shown, by kind."""
        return {each.finding.kind: each.finding.text for each in self.sources.attention.standing}

    def fail(self, job: Job) -> None:
        self.broker.fail(attempt_of(job), "no", self.now)
        self.runner.run_once()
