"""Likely bugs of a MemoDB broker, planted on purpose: a simulator that misses them is too weak.

Each is a subclass that replaces the real broker side, or its callers, for one run; nothing in `src` is changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.dialects.memodb.codec import write_heartbeat
from dragoman.dialects.memodb.messages import Ready
from dragoman.dialects.memodb.records import RemoteMemoDbWorker
from dragoman.server.connection import StreamConnection
from sim.memodb_oracle import WatchedCallers, WatchedMemoDb

NOBODY = -1


class KeyedByConnection(WatchedMemoDb):
    """A worker's request is known again on its own connection only, so a repeated RESULT is another one (R60)."""

    def before_request(self, remote: RemoteMemoDbWorker, peer: StreamConnection) -> None:
        if remote.peer is not peer:
            remote.request_hash = NOBODY


class NoReplay(WatchedMemoDb):
    """A worker's request is never known again: a repeated RESULT is booked on its next job (R60)."""

    def before_request(self, remote: RemoteMemoDbWorker, peer: StreamConnection) -> None:
        remote.request_hash = NOBODY


class HeartbeatForReplay(WatchedMemoDb):
    """A repeated request is answered that there is no job, whatever the first reply was (R60)."""

    def _receive_again(self, remote: RemoteMemoDbWorker, peer: StreamConnection, route: bytes, now: float) -> None:  # type: ignore[override]
        if remote.answer is not None:
            remote.answer = [write_heartbeat(remote.id)]
        super()._receive_again(remote, peer, route, now)


class ReadyOnNewConnection(WatchedMemoDb):
    """READY on another connection is another worker, and the former one a ghost (R61)."""

    def _receive_ready(self, peer: StreamConnection, route: bytes, mark: int, ready: Ready, now: float) -> None:  # type: ignore[override]
        self._lost_readies.clear()
        super()._receive_ready(peer, route, mark, ready, now)


class ReadyByTimer(WatchedMemoDb):
    """READY repeated on its connection is another worker (R61)."""

    def _receive_ready(self, peer: StreamConnection, route: bytes, mark: int, ready: Ready, now: float) -> None:  # type: ignore[override]
        peer.remote.readies.pop(route, None)
        super()._receive_ready(peer, route, mark, ready, now)


class JobByTimer(WatchedCallers):
    """A caller's JOB repeated on its connection is another job (R62, R74)."""

    def before_job(self, peer: StreamConnection, route: bytes, mark: int) -> None:
        call = peer.remote.waiting.get(route)
        if call is not None:
            call.request_hash = NOBODY


class JobOnNewConnection(WatchedCallers):
    """A caller's JOB on another connection is another job (R62, R63)."""

    def before_job(self, peer: StreamConnection, route: bytes, mark: int) -> None:
        for call in self.orphans.values():
            call.request_hash = NOBODY
        self.orphans = {call.key: call for call in self.orphans.values()}


class AdoptedByIdAlone(WatchedCallers):
    """A request with the id of a lost one is treated as that one, whatever its content is (R62)."""

    def before_job(self, peer: StreamConnection, route: bytes, mark: int) -> None:
        for key in list(self.orphans):
            if key[1:3] == (peer.address, route[-4:]) and key[3] != mark:
                call = self.orphans.pop(key)
                call.request_hash = mark
                self.orphans[call.key] = call


class GivenAgain(WatchedMemoDb):
    """A job whose worker's connection ended is given to another worker at once (R65)."""

    def lost(self, peer: StreamConnection, unsent: Sequence[object], now: float) -> None:  # type: ignore[override]
        held = [remote.attempt for remote in peer.remote.remotes if remote.attempt is not None]
        super().lost(peer, list(dict.fromkeys([*unsent, *held])), now)


class OfferedWhileAway(WatchedMemoDb):
    """A worker that was sent HEARTBEAT is given a job before its next request."""

    def tick(self, now: float) -> float:
        due = super().tick(now)
        for remote in self._remotes.values():
            if remote.answer is not None and remote.attempt is None and remote.peer is not None:
                self._broker.availability.ask(remote.worker, 1, now)
        return due


def planted(callers: type[WatchedCallers]) -> type[WatchedMemoDb]:
    return type(callers.__name__, (WatchedMemoDb,), {"callers_type": callers})


# Name, what is put in, and the letters by one of which the oracle should find it.
BUGS: tuple[tuple[str, type[WatchedMemoDb], tuple[str, ...]], ...] = (
    ("requests keyed by connection", KeyedByConnection, ("I7",)),
    ("no replay", NoReplay, ("I7",)),
    ("HEARTBEAT instead of a replay", HeartbeatForReplay, ("R60",)),
    ("READY on a new connection makes a ghost", ReadyOnNewConnection, ("R61",)),
    ("READY by the timer makes a ghost", ReadyByTimer, ("R61",)),
    ("JOB by the timer is another job", planted(JobByTimer), ("R62",)),
    ("JOB on a new connection is another job", planted(JobOnNewConnection), ("R62",)),
    ("JOB adopted by its id alone", planted(AdoptedByIdAlone), ("I7",)),
    ("JOB given again when a connection ends", GivenAgain, ("I8", "R62")),
    ("JOB to a worker that has not asked", OfferedWhileAway, ("R60", "R64")),
)
