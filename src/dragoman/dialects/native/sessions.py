"""Clients of the native dialect, which may come back to what they left when their connection broke."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from math import inf
from typing import Any

from dragoman.carriers.carrier import Frame
from dragoman.core.model import Job, JobId
from dragoman.dialects.native.codec import RESULT_BYTE
from dragoman.dialects.seam import Peer


class Client:
    """What we know of one client: what it waits for, and the outcomes that it may not have heard of."""

    __slots__ = (
        "_kept",
        "_kept_bytes",
        "away_until",
        "done",
        "has_dropped",
        "jobs",
        "peer",
        "refused",
        "results",
        "secret",
        "session",
        "window",
    )

    def __init__(self, session: Any, secret: str, window: int) -> None:
        self.session = session  # to whom effects about its jobs go
        self.secret = secret  # by which it is known again; empty: it does not come back
        self.window = window
        self.peer: Peer | None = None  # none while it is away
        self.jobs: dict[JobId, Job] = {}
        self.refused: deque[JobId] = deque()  # turned away at the door; the answers come in this order
        self.done: list[bytes] = []  # in this turn: ids and results leave at its end, in one message
        self.results: list[Frame] = []
        self.away_until = inf
        self.has_dropped = False  # an outcome that it may not have heard of
        self._kept: dict[bytes, tuple[list[Frame], int]] = {}  # the last outcomes, oldest first, and their sizes
        self._kept_bytes = 0

    def keep(self, id: bytes, frames: list[Frame], size: int, max_bytes: int) -> None:
        """A client that keeps to its window cannot miss more than the last `window` outcomes."""
        kept = self._kept
        kept[id] = (frames, size)
        self._kept_bytes += size
        if len(kept) > self.window:
            self._drop_oldest()
        while self._kept_bytes > max_bytes:
            self._drop_oldest()
            self.has_dropped = True

    def keep_results(self, ids: list[bytes], results: list[Frame], max_bytes: int) -> None:
        """The same for a turn's worth of results."""
        for id, result in zip(ids, results, strict=True):
            self.keep(id, [RESULT_BYTE + id, result], len(result), max_bytes)

    def heard(self, id: bytes) -> None:
        """It has this outcome for certain."""
        known = self._kept.pop(id, None)
        if known is not None:
            self._kept_bytes -= known[1]

    def kept_outcome(self, id: bytes) -> list[Frame] | None:
        known = self._kept.get(id)
        return known[0] if known is not None else None

    def _drop_oldest(self) -> None:
        _, size = self._kept.pop(next(iter(self._kept)))
        self._kept_bytes -= size


class Sessions:
    """The clients that may come back, by their secret."""

    __slots__ = ("_away", "_by_secret", "_max_away")

    def __init__(self, max_away: int) -> None:
        self._max_away = max_away
        self._by_secret: dict[str, Client] = {}
        self._away: dict[str, Client] = {}  # the one that left first comes first

    def enter(self, client: Client) -> None:
        if client.secret:
            self._by_secret[client.secret] = client

    def take(self, secret: str) -> Client | None:
        """The client of this secret, if it is known; it is not away any more."""
        client = self._by_secret.get(secret)
        if client is not None:
            self._away.pop(secret, None)
            client.away_until = inf
        return client

    def note_away(self, client: Client, until: float) -> Iterator[Client]:
        """Its connection broke. Yields those that are forgotten because there are too many."""
        client.away_until = until
        self._away[client.secret] = client
        while len(self._away) > self._max_away:
            yield self._away.pop(next(iter(self._away)))

    def overdue(self, now: float) -> Iterator[Client]:
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

    def forget(self, client: Client) -> None:
        if self._by_secret.get(client.secret) is client:
            del self._by_secret[client.secret]
            self._away.pop(client.secret, None)
