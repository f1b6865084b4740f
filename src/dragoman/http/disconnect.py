"""Tells a request handler that the client has disconnected."""

from __future__ import annotations

from collections.abc import Callable

HANGUP = "dragoman.hangup"


class DisconnectSignal:
    """In a request's scope: a function to call if the client disconnects before the response is complete."""

    __slots__ = ("call", "is_gone")

    def __init__(self) -> None:
        self.call: Callable[[], None] | None = None
        self.is_gone = False

    def happen(self) -> None:
        self.is_gone = True
        call, self.call = self.call, None
        if call is not None:
            call()
