"""Operations of native clients: ASK, with TELL or OBJECT as response.

An operation has a name, and its request is JSON; `Operations`, which is passed in, handles both. Operations in progress
belong to the connection: if it breaks, the client sends them again on the next.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.failure import Failure
from dragoman.core.oversize import over_max_payload
from dragoman.core.owners import Owner
from dragoman.dialects.interface import BrokerIO
from dragoman.dialects.native.client_sessions import ClientSession
from dragoman.dialects.native.codec import read_ask, read_ask_number, write_object, write_tell
from dragoman.dialects.native.messages import TOO_LARGE

BUSY: Final = "busy"
INVALID: Final = "invalid"


class Operations(Protocol):
    """Executes operations."""

    def ask(self, operation: str, request: bytes, payload: Frame, responder: Any, now: float) -> object | None:
        """Execute an operation. `responder` receives the response or error once, now or later; if later, the returned
        object identifies the request for `leave`."""

    def leave(self, pending: Any, now: float) -> None:
        """Drop a request whose client has disconnected."""


class PendingOperation:
    """An operation without a response."""

    __slots__ = ("_client", "_io", "_number", "pending")

    def __init__(self, client: ClientSession, io: BrokerIO, number: bytes) -> None:
        self._client = client
        self._io = io
        self._number = number
        self.pending: object | None = None

    @property
    def owner(self) -> Owner:
        return self._client.owner

    @property
    def dialect(self) -> str:
        return "native"

    @property
    def origin(self) -> str:
        peer = self._client.peer
        if peer is None:
            return ""
        return f"{peer.address}, {peer.label}" if peer.process else peer.label

    @property
    def edition(self) -> int:
        return self._client.edition

    def tell(self, view: bytes, payload: Frame, failure: Failure | None = None) -> None:
        if self._finish():
            frames = write_tell(self._number, view, payload, failure)
            self._io.send(self._client.peer, frames)  # type: ignore[arg-type]

    def object(self, kind: str, detail: str) -> None:
        if self._finish():
            self._io.send(self._client.peer, write_object(self._number, kind, detail))  # type: ignore[arg-type]

    def _finish(self) -> bool:
        """Remove it from the operations in progress. Returns False if its connection has ended."""
        operations = self._client.operations
        if operations.get(self._number) is not self:
            return False
        del operations[self._number]
        return True


class PendingOperations:
    """The operations of all clients of one listener."""

    __slots__ = ("_io", "_max_payload", "_operations")

    def __init__(self, operations: Operations | None, io: BrokerIO, max_payload: int) -> None:
        self._max_payload = max_payload
        self._operations = operations
        self._io = io

    def receive(self, client: ClientSession, message: Message, now: float) -> None:
        number, operation, request, payload = read_ask(message)
        operations = client.operations
        if number in operations:
            raise Malformed("twice", f"ASK {number.hex()} is in progress already; use another number")
        ask = PendingOperation(client, self._io, number)
        if len(operations) >= client.window:
            operations[number] = ask
            ask.object(BUSY, f"the client has {len(operations) - 1} of {client.window} operations in progress (window)")
            return
        operations[number] = ask
        if len(payload) > self._max_payload:
            ask.object(TOO_LARGE, over_max_payload("payload", len(payload), self._max_payload))
            return
        if self._operations is None:
            ask.object(INVALID, "this broker has no operations")
            return
        pending = self._operations.ask(operation, request, payload, ask, now)
        if operations.get(number) is ask:
            ask.pending = pending

    def receive_large(self, client: ClientSession, message: TooLarge, sentence: str) -> None:
        """Send an error for a message over the limit, which the carrier has dropped."""
        number = read_ask_number(message.frames[0])
        if number in client.operations:
            raise Malformed("twice", f"ASK {number.hex()} is in progress already; use another number")
        self._io.send(client.peer, write_object(number, TOO_LARGE, sentence))  # type: ignore[arg-type]

    def leave(self, client: ClientSession, now: float) -> None:
        """Drop the operations of a client whose connection has ended."""
        operations, client.operations = client.operations, {}
        for ask in operations.values():
            if ask.pending is not None and self._operations is not None:
                self._operations.leave(ask.pending, now)
