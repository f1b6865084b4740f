"""Connections of a replay: their carriers, streams and credentials come from the recording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dragoman.access.identities import Identity, IdentityKind
from dragoman.carriers.carrier import Carrier, Frame, Messages, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.rights import Principals
from dragoman.recording.item_reader import ItemReader
from dragoman.recording.items import IDENTIFIED, READ, READ_DRY, UNREAD, WRITE
from dragoman.server.authentication import Admitted, AuthMechanism, ListenerAuth, Rejected
from dragoman.streams.byte_stream import ByteStream


class ReplayedCarrier(Carrier):
    """A carrier in the state that the recording has. Messages to send are encoded by `inner`, without encryption."""

    def __init__(self, inner: Carrier) -> None:
        self.gap = None
        self.rest = b""
        self.outgoing = []
        self.ready = False
        self.failure = None
        self.peer_identity = b""
        self.is_stream_ready = True
        self._inner = inner
        self._holding = 0
        self._has_ping = False

    def apply(self, state: Sequence[Any], outgoing: Sequence[int]) -> None:
        """Take over the recorded state; empty: it has not changed."""
        if state:
            self.ready, self.is_stream_ready, has_gap, self._holding, self.peer_identity, failure, *more = state
            self._has_ping, has_rest = more
            self.rest = b"\0" if has_rest else b""
            self.gap = memoryview(bytearray(1)) if has_gap else None
            self.failure = Malformed(*failure) if failure is not None else None
        self.outgoing = [bytes(size) for size in outgoing]

    def encode(self, frames: Sequence[Frame]) -> list[Frame]:
        return self._inner.encode(frames)

    def ping(self) -> bytes | None:
        return b"\0" if self._has_ping else None

    def release(self) -> None:
        self.rest = b""

    @property
    def holding(self) -> int:
        return self._holding


class ReplayedStream(ByteStream):
    """A stream whose counts and whose end come from the recording."""

    def __init__(self, reader: ItemReader, number: int, carrier: ReplayedCarrier) -> None:
        self.sent = self.received = self.backlog = 0
        self.closed_in_order = False
        self._reader = reader
        self._number = number
        self._carrier = carrier

    def apply(self, sent: int, backlog: int, closed_in_order: bool) -> None:
        self.sent, self.backlog, self.closed_in_order = sent, backlog, closed_in_order

    def write(self, buffers: list[Frame]) -> None:
        self.apply(*self._reader.expect(WRITE, self._number))

    def finish(self) -> None:
        pass

    def close(self) -> None:
        pass

    def read_dry(self) -> bool:
        self._reader.expect(READ_DRY, self._number)
        is_open, *counts = self._reader.until(READ)
        self.apply(*counts)
        return bool(is_open)

    def unread(self) -> int:
        [unread] = self._reader.expect(UNREAD, self._number)
        return int(unread)

    @property
    def is_ready(self) -> bool:
        return self._carrier.is_stream_ready


class ReplayedAuth(ListenerAuth):
    """Credentials that prove the principals of the recording."""

    def __init__(self, reader: ItemReader, principals: Principals) -> None:
        self.mechanism = AuthMechanism.NONE
        self._reader = reader
        self._principals = principals

    @property
    def asked_for(self) -> str:
        return "recorded"

    def rejection(self, certificate: bytes | None) -> Rejected | None:
        _, reason = self._reader.expect(IDENTIFIED)
        return Rejected(reason, "") if reason else None

    def judge(self, user: Admitted, certificate: bytes | None, carrier: Carrier) -> Admitted | Rejected:
        facts, *rejected = self._reader.expect(IDENTIFIED)
        found = admitted_of(self._principals, facts)
        return found or Rejected(rejected[0], "")


def admitted_of(principals: Principals, facts: Sequence[str] | None) -> Admitted | None:
    if facts is None:
        return None
    name, kind = facts
    return Admitted(principals.named(name), Identity(IdentityKind(kind), b"") if kind else None)


def messages_of(recorded: list[Any]) -> Messages:
    """Return recorded messages as a carrier returns them."""
    return [TooLarge(each["frames"], each["size"]) if isinstance(each, dict) else each for each in recorded]
