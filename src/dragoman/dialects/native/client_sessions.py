"""Clients of the native dialect, which may come back to what they left when their connection broke."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dragoman.carriers.carrier import Frame, size_of
from dragoman.core.infinity import inf
from dragoman.core.model import Caller, JobId
from dragoman.core.owners import Owner
from dragoman.core.recipients import Recipient
from dragoman.dialects.interface import Connection
from dragoman.dialects.native.codec import write_result


class UnacknowledgedOutcomes:
    """What a client was told at once: results by ids, or the message that told how one job ended."""

    __slots__ = ("connection", "ids", "is_emptied", "message", "results", "size")

    def __init__(self, ids: list[bytes], results: list[Frame], size: int, message: list[Frame] | None = None) -> None:
        self.ids = ids
        self.results = results
        self.size = size
        self.message = message
        self.connection = 0  # which of the client's connections brought them
        self.is_emptied = False

    def empty(self) -> None:
        """There is no room for it: only that they were told is still known."""
        self.results, self.message, self.size, self.is_emptied = [], None, 0, True

    def messages(self) -> Iterator[tuple[bytes, list[Frame] | None]]:
        if self.is_emptied:
            yield from ((id, None) for id in self.ids)
        elif self.message is not None:
            yield self.ids[0], self.message
        else:
            for id, result in zip(self.ids, self.results, strict=True):
                yield id, write_result([id], [result])

    def take_out(self, known: Mapping[bytes, None]) -> None:
        left = [index for index, id in enumerate(self.ids) if id not in known]
        if len(left) == len(self.ids):
            return
        self.ids = [self.ids[index] for index in left]
        if self.message is None and not self.is_emptied:
            self.results = [self.results[index] for index in left]
            self.size = size_of(self.results)


class ClientSession(Caller):
    """The record of one client, and the outcomes that it may not have heard of."""

    __slots__ = (
        "_emptied",
        "_kept",
        "_kept_bytes",
        "_kept_count",
        "asks",
        "away_until",
        "connection",
        "done",
        "edition",
        "epoch",
        "peer",
        "refused",
        "results",
        "secret",
        "window",
    )

    def __init__(self, recipient: Recipient, secret: str, epoch: str, window: int) -> None:
        super().__init__(recipient)
        self.secret = secret  # its session and epoch, by which it is known again; empty: it does not come back
        self.epoch = epoch
        self.window = window
        self.edition = 1  # of operations and their views
        self.peer: Connection | None = None  # none while it is away
        self.connection = 0  # which of its connections this is, or was the last
        self.asks: dict[bytes, Any] = {}  # questions under way on its connection, by their numbers
        self.refused: deque[JobId] = deque()  # turned away at the door; the answers come in this order
        self.done: list[bytes] = []  # in this turn: ids and results leave at its end, in one message
        self.results: list[Frame] = []
        self.away_until = inf
        self._kept: deque[UnacknowledgedOutcomes] = deque()  # the last ones, in the order they were told
        self._emptied = 0  # of these, how many have been emptied: the first ones
        self._kept_count = 0
        self._kept_bytes = 0

    @property
    def owner(self) -> Owner | None:
        """The owner whose limits its jobs count for; None while it is away."""
        return self.peer.owner if self.peer is not None else None

    def keep(self, outcomes: UnacknowledgedOutcomes, max_bytes: int) -> None:
        """A client that keeps to its window cannot miss more than the last `window` outcomes."""
        outcomes.connection = self.connection
        kept = self._kept
        kept.append(outcomes)
        self._kept_count += len(outcomes.ids)
        self._kept_bytes += outcomes.size
        while self._kept_count - len(kept[0].ids) >= self.window:
            self._drop_oldest()
        while self._kept_bytes > max_bytes:
            oldest = kept[self._emptied]
            self._emptied += 1
            self._kept_bytes -= oldest.size
            oldest.empty()

    def heard(self, ids: Sequence[bytes]) -> None:
        """It has these outcomes for certain."""
        known = dict.fromkeys(ids)
        for outcomes in self._kept:
            outcomes.take_out(known)
        self._kept = deque(outcomes for outcomes in self._kept if outcomes.ids)
        self._emptied = sum(outcomes.is_emptied for outcomes in self._kept)
        self._kept_count = sum(len(outcomes.ids) for outcomes in self._kept)
        self._kept_bytes = sum(outcomes.size for outcomes in self._kept)

    def kept_messages(self) -> dict[bytes, tuple[list[Frame] | None, int]]:
        """What can be told again, by the ids of jobs, or none if it was not kept; and which connection brought it."""
        return {id: (frames, each.connection) for each in self._kept for id, frames in each.messages()}

    def _drop_oldest(self) -> None:
        outcomes = self._kept.popleft()
        self._emptied -= outcomes.is_emptied
        self._kept_count -= len(outcomes.ids)
        self._kept_bytes -= outcomes.size


class ClientSessions:
    """The clients that are connected, and those that may come back, by their secret."""

    __slots__ = ("_away", "_by_secret", "_max_away", "present")

    def __init__(self, max_away: int) -> None:
        self._max_away = max_away
        self.present: dict[ClientSession, None] = {}  # connected now, also those without a secret
        self._by_secret: dict[str, ClientSession] = {}
        self._away: dict[str, ClientSession] = {}  # the one that left first comes first

    def enter(self, client: ClientSession) -> None:
        self.present[client] = None
        if client.secret:
            self._by_secret[client.secret] = client

    def take(self, secret: str) -> ClientSession | None:
        """The client of this secret, if it is known; it is not away any more."""
        client = self._by_secret.get(secret)
        if client is not None:
            self._away.pop(secret, None)
            self.present[client] = None
            client.away_until = inf
        return client

    def note_away(self, client: ClientSession, until: float) -> Iterator[ClientSession]:
        """Its connection broke. Yields those that are forgotten because there are too many."""
        self.present.pop(client, None)
        client.away_until = until
        self._away[client.secret] = client
        while len(self._away) > self._max_away:
            yield self._away.pop(next(iter(self._away)))

    def overdue(self, now: float) -> Iterator[ClientSession]:
        """Those that did not come back in time; all are waited for equally long, so the first is the one due first."""
        while self._away:
            client = next(iter(self._away.values()))
            if client.away_until > now:
                return
            del self._away[client.secret]
            yield client

    def next_due(self) -> float:
        for client in self._away.values():
            return client.away_until
        return inf

    def forget(self, client: ClientSession) -> None:
        self.present.pop(client, None)
        if self._by_secret.get(client.secret) is client:
            del self._by_secret[client.secret]
            self._away.pop(client.secret, None)
