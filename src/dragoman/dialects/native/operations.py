"""What clients ask the broker besides their jobs' outcomes: ASK, and TELL or OBJECT for an answer.

A question is a text and its form is JSON; both are the desk's business, which is passed in. What is under way belongs
to the connection: if that breaks, the client asks again on the next.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.failure import Failure
from dragoman.core.owners import Owner
from dragoman.dialects.interface import BrokerIO
from dragoman.dialects.native.client_sessions import ClientSession
from dragoman.dialects.native.codec import read_ask, read_ask_number, write_object, write_tell
from dragoman.dialects.native.messages import TOO_LARGE

BUSY: Final = "busy"
INVALID: Final = "invalid"


class Operations(Protocol):
    """Who knows the answers."""

    def ask(self, question: str, form: bytes, payload: Frame, responder: Any, now: float) -> object | None:
        """`asker` is told or objected to, once, at once or later; who may have to wait gets a ticket to leave by."""

    def leave(self, pending: Any, now: float) -> None:
        """Whoever waited has gone."""


class PendingOperation:
    """A question under way."""

    __slots__ = ("_client", "_io", "_number", "pending")

    def __init__(self, client: ClientSession, io: BrokerIO, number: bytes) -> None:
        self._client = client
        self._io = io
        self._number = number
        self.pending: object | None = None

    @property
    def owner(self) -> Owner | None:
        return self._client.owner

    @property
    def edition(self) -> int:
        return self._client.edition

    def tell(self, view: bytes, payload: Frame, failure: Failure | None = None) -> None:
        if self._is_waited_for():
            frames = write_tell(self._number, view, payload, failure)
            self._io.send(self._client.peer, frames)  # type: ignore[arg-type]

    def object(self, kind: str, detail: str) -> None:
        if self._is_waited_for():
            self._io.send(self._client.peer, write_object(self._number, kind, detail))  # type: ignore[arg-type]

    def _is_waited_for(self) -> bool:
        """Whether its connection is still there; it is not under way any more."""
        asks = self._client.asks
        if asks.get(self._number) is not self:
            return False
        del asks[self._number]
        return True


class PendingOperations:
    """The questions of all clients of one listener."""

    __slots__ = ("_io", "_operations")

    def __init__(self, operations: Operations | None, io: BrokerIO) -> None:
        self._operations = operations
        self._io = io

    def receive(self, client: ClientSession, message: Message, now: float) -> None:
        number, question, form, payload = read_ask(message)
        asks = client.asks
        if number in asks:
            raise Malformed("twice", f"ASK {number.hex()} is under way already")
        ask = PendingOperation(client, self._io, number)
        if len(asks) >= client.window:
            asks[number] = ask
            ask.object(BUSY, f"its client has {len(asks) - 1} of {client.window} questions under way")
            return
        asks[number] = ask
        if self._operations is None:
            ask.object(INVALID, "this broker answers no questions")
            return
        pending = self._operations.ask(question, form, payload, ask, now)
        if asks.get(number) is ask:
            ask.pending = pending

    def receive_large(self, client: ClientSession, message: TooLarge, sentence: str) -> None:
        """It was skipped as it came."""
        number = read_ask_number(message.frames[0])
        if number in client.asks:
            raise Malformed("twice", f"ASK {number.hex()} is under way already")
        self._io.send(client.peer, write_object(number, TOO_LARGE, sentence))  # type: ignore[arg-type]

    def leave(self, client: ClientSession, now: float) -> None:
        """Its connection is gone: nobody waits for these answers any more."""
        asks, client.asks = client.asks, {}
        for ask in asks.values():
            if ask.pending is not None and self._operations is not None:
                self._operations.leave(ask.pending, now)
