"""Acknowledges what brokers have told about attempts, after what follows from it is committed (C5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import final

from dragoman.cluster.held_outcomes import HeldOutcomes
from dragoman.cluster.hub import Hub
from dragoman.cluster.peers import Peer
from dragoman.cluster.records import Ack
from dragoman.core.commits import PendingCommits
from dragoman.core.model import Token


@final
class CommittedAcks:
    """Acknowledgements that wait for a commit. A broker None is this one."""

    def __init__(
        self, pending_commits: PendingCommits, hub: Hub, outcomes: HeldOutcomes, shard_of: Callable[[bytes], int]
    ) -> None:
        self._pending_commits = pending_commits
        self._hub = hub
        self._outcomes = outcomes  # of attempts that ran at this broker
        self._shard_of = shard_of
        self._ended: dict[Token, None] = {}  # attempts whose outcome is being committed
        self._waiting: dict[int, deque[tuple[int, Token, Peer | None]]] = {}  # by shard, with the number of a save

    def is_ending(self, token: Token) -> bool:
        """True if the outcome of an attempt has been taken, and is being committed."""
        return token in self._ended

    def ended(self, token: Token, peer: Peer | None) -> None:
        """The outcome of a current attempt has been taken."""
        self._ended[token] = None
        self._wait(token, peer)

    def told(self, token: Token, peer: Peer | None) -> None:
        """Something else about an attempt has been taken: acknowledge it after what is decided so far."""
        shard = self._wait(token, peer)
        self.safe(shard, self._pending_commits.safe(shard))

    def _wait(self, token: Token, peer: Peer | None) -> int:
        shard = self._shard_of(token)
        self._waiting.setdefault(shard, deque()).append((self._pending_commits.last(shard), token, peer))
        return shard

    def safe(self, shard: int, number: int) -> None:
        """All saves of a shard up to this one are committed."""
        waiting = self._waiting.get(shard)
        while waiting and waiting[0][0] <= number:
            _, token, peer = waiting.popleft()
            self._ended.pop(token, None)
            self.send(token, peer)

    def send(self, token: Token, peer: Peer | None) -> None:
        if peer is None:
            self._outcomes.acknowledged(token)
            return
        live = self._hub.live_peer(peer.name, peer.incarnation)
        if live is not None:
            self._hub.send(live, Ack(token))

    def leave(self, shard: int) -> None:
        """Drop those of attempts whose shard has left: the next owner acknowledges them."""
        for _, token, _ in self._waiting.pop(shard, ()):
            self._ended.pop(token, None)
