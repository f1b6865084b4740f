"""The connection of shards with the links to other brokers: an interface, which `shard_hub.py` implements."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from dragoman.cluster.hearing import Hearing
from dragoman.cluster.peers import Peer
from dragoman.cluster.records import Ack, Failed, Held, Outcome, Progress, Result, Watch, Watched
from dragoman.core.model import Attempt, Caller, Token
from dragoman.core.recipients import Recipient


@mypyc_attr(allow_interpreted_subclasses=True)
class Hub(Recipient):
    """The cluster's side, as the keeper needs it."""

    name: str
    incarnation: str
    hearing: Hearing  # of this broker
    has_settings: bool  # the pauses and limits in shard 0 were read here, or heard from its owner

    def live_peer(self, name: str, incarnation: str) -> Peer | None:
        """Return the run of another broker, if it is heard."""
        raise NotImplementedError

    def finish(self, attempt: Attempt, record: Result | Failed, now: float) -> None:
        """Report the outcome of an attempt to the core."""
        raise NotImplementedError

    def take(self, peer: Peer | None, record: Outcome | Held | Progress, now: float) -> None:
        """Find the attempt of an outcome, or of other news, and pass both on. `peer` is None for one of this broker."""
        raise NotImplementedError

    def heir(self, attempt: Attempt) -> Caller | None:
        """Let a local attempt of a shard that leaves go on; None: a worker of another broker has it."""
        raise NotImplementedError

    def adopt(self, attempt: Attempt, holder: str, now: float) -> None:
        """Wait for an attempt that another broker's worker has, or a worker of ours for an earlier owner."""
        raise NotImplementedError

    def is_held(self, token: Token, holder: str) -> bool:
        """True if the broker that has the attempt lives."""
        raise NotImplementedError

    def is_running(self, attempt: Attempt) -> bool:
        """True if a worker has the attempt, here or at a broker that is heard."""
        raise NotImplementedError

    def send(self, peer: Peer, record: Ack | Outcome | Held | Progress | Watch | Watched) -> None:
        raise NotImplementedError

    def remark(self, event: str, level: str, shard: int, **facts: object) -> None:
        """Log an event of a shard."""
        raise NotImplementedError

    def settings_read(self, notes: dict[str, str], now: float) -> None:
        """Shard 0 is going to be ours: these are its notes, with the pauses and limits that hold for its jobs."""
        raise NotImplementedError

    def notes_restored(self, notes: dict[str, str], now: float) -> None:
        """Shard 0 is ours, with its schedules: these are its notes."""
        raise NotImplementedError

    def notes_lost(self, now: float) -> None:
        """Shard 0 is not ours any more."""
        raise NotImplementedError
