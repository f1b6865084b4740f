"""Outcomes of background attempts that ran here, until the owner of their shard has them in its log (C5).

An outcome goes to the broker that has the shard, over the link to it. It is sent again whenever the shard has another
owner or another epoch, and forgotten when the owner acknowledges it: after its commit, or because the attempt does not
matter any more. That a worker has come here with an attempt is told in the same way, until the attempt has an outcome.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from mypy_extensions import mypyc_attr

from dragoman.cluster.records import Held, Outcome, Progress
from dragoman.core.model import Token

Owner = tuple[str, str, int]  # broker, its run, and the epoch of the shard


@mypyc_attr(allow_interpreted_subclasses=True)
class Owners:
    """Knows the owner of each shard, and sends records to it."""

    def owner_of(self, token: bytes) -> Owner | None:
        """Return the owner of the shard of this attempt; None: nobody that is heard."""
        raise NotImplementedError

    def send_outcome(self, owner: Owner, record: Outcome | Held | Progress, now: float) -> None:
        raise NotImplementedError


@final
class HeldOutcome:
    """A record that is not acknowledged."""

    __slots__ = ("record", "sent_to")

    def __init__(self, record: Outcome | Held) -> None:
        self.record = record
        self.sent_to: Owner | None = None


class HeldOutcomes:
    """All outcomes of this broker that are not acknowledged, by token."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self._held: dict[Token, HeldOutcome] = {}
        self._running: dict[Token, HeldOutcome] = {}  # attempts with which workers have come here

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, token: Token) -> bool:
        return token in self._held

    @property
    def tokens(self) -> Iterable[Token]:
        """The attempts whose outcome is held."""
        return self._held

    def announce(self, record: Held, now: float) -> None:
        """Tell the owner that a worker has come here with an attempt."""
        self._running[Token(record.token)] = held = HeldOutcome(record)
        self._send(held, now)

    def report(self, record: Progress, now: float) -> None:
        """Send a report to the owner, if there is one now."""
        owner = self._owners.owner_of(record.token)
        if owner is not None:
            self._owners.send_outcome(owner, record, now)

    def has_owner(self, token: bytes, broker: str, incarnation: str) -> bool:
        """True if this run of a broker owns the shard of the attempt."""
        owner = self._owners.owner_of(token)
        return owner is not None and owner[:2] == (broker, incarnation)

    def hold(self, record: Outcome, now: float) -> None:
        token = Token(record.token)
        self._running.pop(token, None)
        self._held[token] = held = HeldOutcome(record)
        self._send(held, now)

    def acknowledged(self, token: bytes) -> None:
        self._held.pop(Token(token), None)

    def unsent(self, broker: str) -> None:
        """Send again what was sent to this broker: the link to it was dropped."""
        for held in [*self._held.values(), *self._running.values()]:
            if held.sent_to is not None and held.sent_to[0] == broker:
                held.sent_to = None

    def tick(self, now: float) -> None:
        """Send what has not been sent to the present owner of its shard."""
        for held in [*self._held.values(), *self._running.values()]:
            self._send(held, now)

    def _send(self, held: HeldOutcome, now: float) -> None:
        owner = self._owners.owner_of(held.record.token)
        if owner is not None and owner != held.sent_to:
            held.sent_to = owner
            self._owners.send_outcome(owner, held.record, now)
