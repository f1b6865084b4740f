"""Sessions of native clients: the state that a client finds again after its connection broke."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dragoman.carriers.carrier import Frame, size_of
from dragoman.core.infinity import inf
from dragoman.core.model import Caller, JobId
from dragoman.core.owners import Owner
from dragoman.core.recipients import Recipient
from dragoman.core.rights import Principal
from dragoman.core.shares import Shares, holder_of
from dragoman.dialects.interface import Connection
from dragoman.dialects.native.codec import write_result


class UnacknowledgedOutcomes:
    """Outcomes that were sent together: results by job ids, or the message about one job's end."""

    __slots__ = ("connection", "ids", "is_emptied", "message", "results", "size")

    def __init__(self, ids: list[bytes], results: list[Frame], size: int, message: list[Frame] | None = None) -> None:
        self.ids = ids
        self.results = results
        self.size = size
        self.message = message
        self.connection = 0  # the number of the client's connection that they were sent on
        self.is_emptied = False

    def empty(self) -> None:
        """Drop the results, because there is no room. It is still known that they were sent."""
        self.results, self.message, self.size, self.is_emptied = [], None, 0, True

    def messages(self) -> Iterator[tuple[bytes, list[Frame] | None]]:
        if self.is_emptied:
            yield from ((id, None) for id in self.ids)
        elif self.message is not None:
            yield self.ids[0], self.message
        else:
            for id, result in zip(self.ids, self.results, strict=True):
                yield id, write_result([id], [result])

    def remove(self, known: Mapping[bytes, None]) -> None:
        left = [index for index, id in enumerate(self.ids) if id not in known]
        if len(left) == len(self.ids):
            return
        self.ids = [self.ids[index] for index in left]
        if self.message is None and not self.is_emptied:
            self.results = [self.results[index] for index in left]
            self.size = size_of(self.results)


class ClientSession(Caller):
    """State of one client, with the outcomes that it may not have received."""

    __slots__ = (
        "_emptied",
        "_kept",
        "_kept_bytes",
        "_kept_count",
        "away_until",
        "connection",
        "done",
        "edition",
        "epoch",
        "has_extras",
        "operations",
        "peer",
        "refused",
        "results",
        "secret",
        "window",
    )

    def __init__(self, recipient: Recipient, owner: Owner, secret: str, epoch: str, window: int) -> None:
        super().__init__(recipient, owner)
        self.secret = secret  # session and epoch, which identify it; empty: it cannot resume
        self.epoch = epoch
        self.window = window
        self.edition = 1  # of operations and their views
        self.has_extras = False  # flag EXTRAS of its SUBMITs means a frame of extras
        self.peer: Connection | None = None  # None while it is disconnected
        self.connection = 0  # number of its current or last connection
        self.operations: dict[bytes, Any] = {}  # operations in progress on its connection, by number
        self.refused: deque[JobId] = deque()  # jobs refused at once; their outcomes come in this order
        self.done: list[bytes] = []  # ids and results of this iteration, sent at its end in one message
        self.results: list[Frame] = []
        self.away_until = inf
        self._kept: deque[UnacknowledgedOutcomes] = deque()  # the last ones, in the order they were sent
        self._emptied = 0  # number of emptied ones at the beginning of `_kept`
        self._kept_count = 0
        self._kept_bytes = 0

    def keep(self, outcomes: UnacknowledgedOutcomes, max_bytes: int) -> None:
        """Keep sent outcomes. A client that respects its window cannot miss more than the last `window` ones."""
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

    def acknowledged(self, ids: Sequence[bytes]) -> None:
        """Drop outcomes that the client has received."""
        known = dict.fromkeys(ids)
        for outcomes in self._kept:
            outcomes.remove(known)
        self._kept = deque(outcomes for outcomes in self._kept if outcomes.ids)
        self._emptied = sum(outcomes.is_emptied for outcomes in self._kept)
        self._kept_count = sum(len(outcomes.ids) for outcomes in self._kept)
        self._kept_bytes = sum(outcomes.size for outcomes in self._kept)

    def kept_messages(self) -> dict[bytes, tuple[list[Frame] | None, int]]:
        """Return kept outcomes by job id: the message, None if it was dropped, and the number of its connection."""
        return {id: (frames, each.connection) for each in self._kept for id, frames in each.messages()}

    def _drop_oldest(self) -> None:
        outcomes = self._kept.popleft()
        self._emptied -= outcomes.is_emptied
        self._kept_count -= len(outcomes.ids)
        self._kept_bytes -= outcomes.size


class ClientSessions:
    """Clients that are connected, and those that may come back, by secret."""

    __slots__ = ("_away", "_away_of", "_by_secret", "_shares", "present")

    def __init__(self, max_away: int) -> None:
        self._shares = Shares(max_away)  # of disconnected clients (R254)
        self._away_of: dict[str, dict[str, None]] = {}  # their secrets by holder, longest first
        self.present: dict[ClientSession, None] = {}  # connected clients, including those without a secret
        self._by_secret: dict[str, ClientSession] = {}
        self._away: dict[str, ClientSession] = {}  # disconnected clients, longest first

    def enter(self, client: ClientSession) -> None:
        self.present[client] = None
        if client.secret:
            self._by_secret[client.secret] = client

    def take(self, secret: str, principal: Principal) -> ClientSession | None:
        """Return the client of this secret and principal, if known, and mark it as connected."""
        client = self._by_secret.get(secret)
        if client is not None and client.owner.principal is not principal:
            return None
        if client is not None:
            self._back(client)
            self.present[client] = None
            client.away_until = inf
        return client

    def set_away(self, client: ClientSession, until: float) -> Iterator[ClientSession]:
        """Mark a client as disconnected. Yields clients to forget because there are too many."""
        self.present.pop(client, None)
        client.away_until = until
        self._away[client.secret] = client
        holder = holder_of(client.owner.principal, client.owner.address)
        self._shares.enter(holder)
        self._away_of.setdefault(holder, {})[client.secret] = None
        while self._shares.taken > self._shares.most:  # the one that disconnected first, of those who have most
            oldest = self._away[next(iter(self._away_of[self._shares.fullest()]))]
            self._back(oldest)
            yield oldest

    def _back(self, client: ClientSession) -> None:
        """Undo `set_away`, if it was away."""
        if self._away.pop(client.secret, None) is not None:
            holder = holder_of(client.owner.principal, client.owner.address)
            self._shares.leave(holder)
            secrets = self._away_of[holder]
            del secrets[client.secret]
            if not secrets:
                del self._away_of[holder]

    def overdue(self, now: float) -> Iterator[ClientSession]:
        """Yield clients that did not come back in time. All have the same time, so the first one is due first."""
        while self._away:
            client = next(iter(self._away.values()))
            if client.away_until > now:
                return
            self._back(client)
            yield client

    def next_due(self) -> float:
        for client in self._away.values():
            return client.away_until
        return inf

    def forget(self, client: ClientSession) -> None:
        self.present.pop(client, None)
        if self._by_secret.get(client.secret) is client:
            del self._by_secret[client.secret]
            self._back(client)
