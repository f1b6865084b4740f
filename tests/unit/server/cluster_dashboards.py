"""Brokers of one cluster with their dashboards, on the clock of the world."""

from __future__ import annotations

from typing import Any

from cluster_world import Node, ShardTable, World

from dragoman.core.model import Attempt
from dragoman.dashboard.dashboard import Dashboard
from dragoman.dashboard.pages import page_of
from dragoman.server.cluster_snapshots import ClusterSnapshots
from dragoman.server.dashboard_source import make_dashboard
from unit.dashboard.world import RecordingReader
from unit.operations.world import READY, WALL


class Dashboards(World):
    """`ahead`: seconds that the wall clock of a broker is ahead of the others, by its name."""

    def __init__(self, *names: str, access: dict[str, Any] | None = None, **ahead: float) -> None:
        super().__init__(*names, table=ShardTable(*names), access=access)
        self.dashboards: dict[str, Dashboard] = {}
        for name, node in self.nodes.items():
            self.dashboards[name] = self._join(node, WALL + ahead.get(name, 0.0))
        self.samples(1)

    def _join(self, node: Node, offset: float) -> Dashboard:
        made = make_dashboard(node.runner, node.operations, lambda: READY, lambda: offset, lambda: self.now)
        ClusterSnapshots(made, node.side, node.router, node.runner)
        return made

    def samples(self, count: int = 1) -> None:
        """Take samples at all brokers, one every 2 seconds."""
        for _ in range(count):
            self.run(2.0)
            for name in self.nodes:
                for _ in self.dashboards[name].sample(self.now):
                    pass

    def watch(self, name: str, page: str = "overview", principal: str = "local") -> RecordingReader:
        """Watch at a broker, and wait for the first snapshot."""
        reader = RecordingReader()
        self.dashboards[name].watch(reader, self.nodes[name].broker.principals.named(principal), page_of(page))
        self.run(0.1)
        return reader

    def beat(self, name: str) -> None:
        """Send the next snapshot at a broker, as it does every second."""
        self.dashboards[name].look(self.now)
        self.run(0.1)
        for _ in self.dashboards[name].publish(self.now):
            pass

    def run_call(self, owner: str, service: str = "s") -> Attempt:
        """Submit a call at a broker, and return its attempt there."""
        job = self.nodes[owner].call(service=service, waits=True)
        assert job is not None
        self.run()
        assert job.attempt is not None
        return job.attempt
