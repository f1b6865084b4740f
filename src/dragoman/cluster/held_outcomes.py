"""Outcomes of background attempts that ran here, until the owner of their shard has them in its log (C5).

An outcome goes to the broker that has the shard, over the link to it. It is sent again whenever the shard has another
owner or another epoch, and forgotten when the owner acknowledges it: after its commit, or because the attempt does not
matter any more.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import mypyc_attr

from dragoman.cluster.records import Failed, Result
from dragoman.core.model import Token

Owner = tuple[str, str, int]  # broker, its run, and the epoch of the shard


@mypyc_attr(allow_interpreted_subclasses=True)
class Owners:
    """Knows the owner of each shard, and sends records to it."""

    def owner_of(self, token: bytes) -> Owner | None:
        """Return the owner of the shard of this attempt; None: nobody that is heard."""
        raise NotImplementedError

    def send_outcome(self, owner: Owner, record: Result | Failed, now: float) -> None:
        raise NotImplementedError


@final
class HeldOutcome:
    """An outcome that is not acknowledged."""

    __slots__ = ("record", "sent_to")

    def __init__(self, record: Result | Failed) -> None:
        self.record = record
        self.sent_to: Owner | None = None


class HeldOutcomes:
    """All outcomes of this broker that are not acknowledged, by token."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self._held: dict[Token, HeldOutcome] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, token: Token) -> bool:
        return token in self._held

    def hold(self, record: Result | Failed, now: float) -> None:
        token = Token(record.token)
        self._held[token] = held = HeldOutcome(record)
        self._send(held, now)

    def acknowledged(self, token: bytes) -> None:
        self._held.pop(Token(token), None)

    def unsent(self, broker: str) -> None:
        """Send again what was sent to this broker: the link to it was dropped."""
        for held in self._held.values():
            if held.sent_to is not None and held.sent_to[0] == broker:
                held.sent_to = None

    def tick(self, now: float) -> None:
        """Send what has not been sent to the present owner of its shard."""
        for held in list(self._held.values()):
            self._send(held, now)

    def _send(self, held: HeldOutcome, now: float) -> None:
        owner = self._owners.owner_of(held.record.token)
        if owner is not None and owner != held.sent_to:
            held.sent_to = owner
            self._owners.send_outcome(owner, held.record, now)
