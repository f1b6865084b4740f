"""How whoever works on a request hears that nobody waits for its response any more."""

from __future__ import annotations

from collections.abc import Callable

HANGUP = "dragoman.hangup"


class DisconnectSignal:
    """In a request's scope: whom to call if the caller goes before the response is complete, and whether it has."""

    __slots__ = ("call", "is_gone")

    def __init__(self) -> None:
        self.call: Callable[[], None] | None = None
        self.is_gone = False

    def happen(self) -> None:
        self.is_gone = True
        call, self.call = self.call, None
        if call is not None:
            call()
