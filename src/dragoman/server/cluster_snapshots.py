"""Snapshots for dashboards at other brokers of the cluster, and questions for theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dragoman.cluster.broker_side import ClusterSide
from dragoman.cluster.peers import Peer
from dragoman.cluster.records import Look, Seen
from dragoman.dashboard.cluster_parts import Wanted
from dragoman.dashboard.dashboard import Dashboard
from dragoman.server.cluster_router import ClusterRouter
from dragoman.server.runner import Runner


class ClusterSnapshots:
    """Connects the dashboard of one broker with those of the others."""

    def __init__(self, dashboard: Dashboard, side: ClusterSide, router: ClusterRouter, runner: Runner) -> None:
        self._dashboard = dashboard
        self._side = side
        self._router = router
        self._wake = runner.connections.request_iteration
        self._report = runner.reports.internal_error
        side.receivers[Look] = self._asked
        side.receivers[Seen] = self._answered
        dashboard.join(self)

    # ---------------------------------------------------------------- facts

    @property
    def name(self) -> str:
        return self._side.name

    def shards(self) -> int:
        keeper = self._side.keeper
        return len(keeper.owned()) if keeper is not None else 0

    def running(self, service: str | None) -> int:
        return self._router.running(service)

    def running_by_service(self) -> Mapping[str, int]:
        return self._router.running_by_service()

    def ended(self, service: str | None) -> Mapping[str, int]:
        return self._router.ended(service)

    def heard(self) -> Sequence[str]:
        return self._router.heard()

    def unheard(self) -> Sequence[str]:
        return self._router.unheard()

    # ---------------------------------------------------------------- records

    def look(self, broker: str, number: int, snapshots: list[Wanted], pages: list[Wanted]) -> bool:
        peer = self._side.peers.get(broker)
        is_sent = peer is not None and self._side.send(peer, Look(number, snapshots, pages))
        self._wake()
        return is_sent

    # An error in a dashboard must not end the packet: outcomes of jobs may be in it.

    def _asked(self, peer: Peer, record: Look, now: float) -> None:
        try:
            snapshots, pages = self._dashboard.show(record.snapshots, record.pages, now)
        except Exception as error:
            self._report(error)
        else:
            self._side.send(peer, Seen(record.number, snapshots, pages))

    def _answered(self, peer: Peer, record: Seen, now: float) -> None:
        try:
            self._dashboard.received(peer.name, record.number, record.snapshots, record.pages, now)
        except Exception as error:
            self._report(error)
