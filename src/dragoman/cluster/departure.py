"""The departure of this broker from its cluster: it stops, and nothing is lost with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from dragoman.cluster.peers import Peer
from dragoman.cluster.records import Free
from dragoman.cluster.taken_jobs import TakenJobs

DEPART_EVERY: Final = 0.05  # seconds between two looks for workers that can go to another broker
NOTHING: Final = Free("", 0)  # a record without a meaning: its acknowledgement follows everything that was sent before


@final
class Departure:
    """Sends workers away, and lets the other brokers answer when they have heard that this one takes no jobs."""

    def __init__(self, peers: dict[str, Peer], taken: TakenJobs, request_flush: Callable[[], None]) -> None:
        self._peers = peers
        self._taken = taken
        self._request_flush = request_flush
        self._is_announced = False

    def tick(self, is_gossiped: bool, may_send_away: bool, now: float) -> float:
        """`is_gossiped`: the others are told that this broker stops. `may_send_away`: its shards have gone, so that
        workers may take running jobs along."""
        if is_gossiped and not self._is_announced:
            self._is_announced = True
            for peer in self._peers.values():
                peer.link.add(NOTHING)
            self._request_flush()
        if self._has_company():
            self._taken.send_idle_away()
            if may_send_away:
                self._taken.send_away()
        return now + DEPART_EVERY

    def _has_company(self) -> bool:
        """True if another broker is heard that does not stop."""
        others = self._peers.values()
        return any(each.gossip is not None and not each.is_silent and not each.gossip.draining for each in others)

    @property
    def is_quiet(self) -> bool:
        """True if all other brokers know that this one stops, and everything that it sent them has arrived: no job is
        on its way here, and no answer is lost with this broker."""
        peers = self._peers.values()
        return not peers or (self._is_announced and all(each.is_silent or each.link.is_acknowledged for each in peers))
