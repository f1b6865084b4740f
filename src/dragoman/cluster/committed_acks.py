"""Acknowledges what brokers have told about attempts, after what follows from it is committed (C5)."""

from __future__ import annotations

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

    def __init__(self, pending_commits: PendingCommits, hub: Hub, outcomes: HeldOutcomes) -> None:
        self._pending_commits = pending_commits
        self._hub = hub
        self._outcomes = outcomes  # of attempts that ran at this broker
        self._ended: dict[Token, tuple[int, Peer | None]] = {}  # number of the save, and the broker that waits
        self._told: list[tuple[int, Token, Peer | None]] = []  # the same, for news that end no attempt

    def is_ending(self, token: Token) -> bool:
        """True if the outcome of an attempt has been taken, and is being committed."""
        return token in self._ended

    def ended(self, token: Token, peer: Peer | None) -> None:
        """The outcome of a current attempt has been taken."""
        self._ended[token] = (self._pending_commits.last, peer)

    def told(self, token: Token, peer: Peer | None) -> None:
        """Something else about an attempt has been taken: acknowledge it after what is decided so far."""
        self._told.append((self._pending_commits.last, token, peer))
        self.safe(self._pending_commits.safe)

    def safe(self, number: int) -> None:
        """Everything up to this save is committed."""
        for token in [token for token, (saved, _) in self._ended.items() if saved <= number]:
            self.send(token, self._ended.pop(token)[1])
        safe = [each for each in self._told if each[0] <= number]
        self._told = [each for each in self._told if each[0] > number]
        for _, token, peer in safe:
            self.send(token, peer)

    def send(self, token: Token, peer: Peer | None) -> None:
        if peer is None:
            self._outcomes.acknowledged(token)
            return
        live = self._hub.live_peer(peer.name, peer.incarnation)
        if live is not None:
            self._hub.send(live, Ack(token))

    def leave(self, is_gone: Callable[[Token], bool]) -> None:
        """Drop those of attempts whose shard has left: the next owner acknowledges them."""
        self._ended = {token: each for token, each in self._ended.items() if not is_gone(token)}
        self._told = [each for each in self._told if not is_gone(each[1])]
