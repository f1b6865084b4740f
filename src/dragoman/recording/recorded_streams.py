"""Connections of a broker that is recorded: their messages, their ends, and the bytes that were sent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pkgutil import resolve_name
from typing import Any, Protocol

from dragoman.carriers.carrier import Carrier, Frame, Message, Messages, TooLarge
from dragoman.core.recipients import Recipient, dialect_of
from dragoman.dialects.catalogue import DIALECTS
from dragoman.dialects.hidden_fields import Hide
from dragoman.dialects.interface import BrokerSide
from dragoman.recording.hidden_payloads import HiddenPayloads
from dragoman.recording.items import (
    ARRIVED,
    CONNECTED,
    ENDED,
    IDENTIFIED,
    READ,
    READ_DRY,
    UNREAD,
    WRITE,
)
from dragoman.server.authentication import Admitted, ListenerAuth, Rejected
from dragoman.server.connection import StreamConnection
from dragoman.server.connection_limits import ConnectionLimits
from dragoman.server.connections import Connections
from dragoman.streams.byte_stream import ByteStream


class Items(Protocol):
    """The recorder, for the parts that add items."""

    hide: HiddenPayloads
    hides_tokens: bool  # the next token proves who somebody is

    def add(self, kind: str, *facts: Any) -> None: ...

    def new_number(self) -> int:
        """Return the number of a new connection."""

    def side_number(self, side: Recipient) -> int: ...

    def is_behind(self, stream: RecordedStream) -> None:
        """The kernel has not taken all bytes of this stream."""


class RecordedStream(ByteStream):
    """A stream whose counts change only at recorded places, so that a replay sees the same values.

    They follow those of the real stream after each write and before each input. `unread` corrects the difference, so
    that a job that left meanwhile is never taken for unsent.
    """

    def __init__(
        self, items: Items, number: int, inner: ByteStream, side: BrokerSide, socket_name: str, carrier: Carrier
    ) -> None:
        self.number = number
        self._items = items
        self._inner = inner
        self._carrier = carrier
        self._hide_message = _function_of(side, socket_name, items.hide)
        self._state: tuple[Any, ...] = ()
        self.update()

    def update(self) -> None:
        """Copy the counts of the real stream."""
        inner = self._inner
        self.sent, self.received, self.backlog = inner.sent, inner.received, inner.backlog
        self.closed_in_order = inner.closed_in_order

    def state(self) -> tuple[Any, ...]:
        """Return the state of the carrier, empty if it has not changed, and the sizes of its own messages."""
        carrier = self._carrier
        failure = carrier.failure
        is_ready = carrier.ready and self._inner.is_ready
        state = (
            carrier.ready,
            self._inner.is_ready,
            carrier.gap is not None,
            carrier.holding,
            carrier.peer_identity,
            (failure.reason, failure.detail) if failure is not None else None,
            self._state[6] if self._state and self._state[6] else is_ready and carrier.ping() is not None,
            carrier.rest != b"",
        )
        outgoing = [len(each) for each in carrier.outgoing]
        if state == self._state:
            return (), outgoing
        self._state = state
        return state, outgoing

    # ---------------------------------------------------------------- inputs

    def start(self, arrived: Callable[[Messages], None], ended: Callable[[str], None]) -> None:
        self._inner.start(partial(self._arrived, arrived), partial(self._ended, ended))

    def _arrived(self, arrived: Callable[[Messages], None], messages: Messages) -> None:
        self.update()
        hidden = [self._hide_message(each) for each in messages]
        self._items.add(ARRIVED, self.number, hidden, *self.state())
        arrived(messages)

    def _ended(self, ended: Callable[[str], None], problem: str) -> None:
        self.update()
        self._items.add(ENDED, self.number, problem, self.closed_in_order)
        ended(problem)

    # ---------------------------------------------------------------- calls of the connections

    def write(self, buffers: list[Frame]) -> None:
        self._inner.write(buffers)
        self.update()
        self._items.add(WRITE, self.number, self.sent, self.backlog, self.closed_in_order)
        if self.backlog:
            self._items.is_behind(self)

    def when_low(self, mark: int, call: Callable[[], None]) -> None:
        self._inner.when_low(mark, call)  # it requests an iteration, and the replay knows when there was one

    def pause(self) -> None:
        self._inner.pause()

    def resume(self) -> None:
        self._inner.resume()

    def finish(self) -> None:
        self._inner.finish()

    def close(self) -> None:
        self._inner.close()

    def read_dry(self) -> bool:
        self._items.add(READ_DRY, self.number)
        is_open = self._inner.read_dry()
        self.update()
        self._items.add(READ, is_open, self.sent, self.backlog, self.closed_in_order)
        return is_open

    def unread(self) -> int:
        unread = self._inner.unread() - (self._inner.sent - self.sent)
        self._items.add(UNREAD, self.number, unread)
        return unread

    @property
    def is_queued(self) -> bool:
        return self._inner.is_queued

    @property
    def is_ready(self) -> bool:
        return self._inner.is_ready

    @property
    def peer_certificate(self) -> bytes | None:
        return self._inner.peer_certificate

    @property
    def wire_sent(self) -> int:
        return self._inner.wire_sent

    @property
    def wire_received(self) -> int:
        return self._inner.wire_received


def _function_of(side: BrokerSide, socket_name: str, hide: HiddenPayloads) -> Callable[[Message | TooLarge], Any]:
    """Return the function that hides the payloads of a message on this socket."""
    name = DIALECTS[dialect_of(side)].hides
    assert name is not None, "only dialects with connections are recorded here"
    hide_payloads: Callable[[str, Message, Hide], Message] = resolve_name(name)

    def hidden(message: Message | TooLarge) -> Any:
        if isinstance(message, TooLarge):
            return {"frames": hidden(message.frames), "size": message.size}
        if hide.is_off:
            return [bytes(frame) for frame in message]
        return [bytes(frame) for frame in hide_payloads(socket_name, message, hide)]

    return hidden


class RecordedConnections:
    """The connections, as the acceptor uses them."""

    def __init__(self, items: Items, connections: Connections) -> None:
        self.registry = connections.registry
        self.limits = connections.limits
        self.turn = connections.turn
        self.start = connections.start
        self._items = items
        self._connections = connections

    def connected(
        self,
        session: BrokerSide,
        socket_name: str,
        carrier: Carrier,
        stream: ByteStream,
        label: str,
        address: str,
        limits: ConnectionLimits,
        is_local: bool,
        process: int,
        admitted: Admitted | None,
        auth: ListenerAuth | None,
    ) -> StreamConnection:
        items = self._items
        number = items.new_number()
        recorded = RecordedStream(items, number, stream, session, socket_name, carrier)
        side = items.side_number(session)
        facts = (label, address, is_local, process, admitted_facts(admitted), auth is not None)
        items.add(CONNECTED, number, side, socket_name, *facts, *recorded.state())
        tapped = RecordedAuth(items, auth) if auth is not None else None
        return self._connections.connected(
            session, socket_name, carrier, recorded, label, address, limits, is_local, process, admitted, tapped
        )


class RecordedAuth(ListenerAuth):
    """The credentials of a listener: the principals that they prove are recorded, and never the credentials."""

    def __init__(self, items: Items, inner: ListenerAuth) -> None:
        self._items = items
        self._inner = inner
        self.authentication = inner.authentication
        self.mechanism = inner.mechanism

    @property
    def asked_for(self) -> str:
        return self._inner.asked_for

    def rejection(self, certificate: bytes | None) -> Rejected | None:
        found = self._inner.rejection(certificate)
        self._items.add(IDENTIFIED, None, found.reason if found is not None else "")
        return found

    def judge(self, user: Admitted, certificate: bytes | None, carrier: Carrier) -> Admitted | Rejected:
        found = self._inner.judge(user, certificate, carrier)
        if isinstance(found, Rejected):
            self._items.add(IDENTIFIED, None, found.reason)
        else:
            self._items.add(IDENTIFIED, admitted_facts(found))
        return found


def admitted_facts(admitted: Admitted | None) -> tuple[str, str] | None:
    """Return the principal's name and the kind of its identity; the identity itself is not recorded."""
    if admitted is None:
        return None
    return admitted.principal.name, admitted.identity.kind if admitted.identity is not None else ""
