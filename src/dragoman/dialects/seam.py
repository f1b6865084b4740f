"""The seam between the line and the dialects: what a session is told, and what it may ask for.

A session translates: messages of its peers into the broker's verbs, and the broker's effects into messages. It does no
I/O, reads no clock and logs nothing. What it wants done in the world it asks of the line, which performs, counts and
logs. These are calls on an object passed in, not request objects put on a list: at three messages a job the objects
would cost more than the translation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from dragoman.carriers.carrier import Carrier, Frame, Message, TooLarge
from dragoman.core.effects import Effect
from dragoman.core.owners import Owner


class Peer(Protocol):
    """One connection's other end."""

    session: Session
    guest: Any  # the session's own record of this peer; the line never looks at it

    @property
    def endpoint(self) -> str:
        """Which of the session's places it came by, or the name it was dialled under."""

    @property
    def identity(self) -> bytes:
        """Its routing id, or empty. A name, not a proof."""

    @property
    def label(self) -> str:
        """How logs call it."""

    @property
    def since(self) -> float:
        """When it came."""

    @property
    def address(self) -> str:
        """Which machine it is on, or which user's it is on this one: all its connections have the same."""

    @property
    def owner(self) -> Owner:
        """Whose limits its jobs count for."""

    @property
    def process(self) -> int:
        """The id of its process on this machine, or 0 if the kernel does not tell."""

    @property
    def closed_in_order(self) -> bool:
        """Whether it has closed its connection itself and has received all that we had for it. Known in `lost`."""


class Line(Protocol):
    """What a session may ask for."""

    def send(self, peer: Peer, frames: Sequence[Frame], mark: object = None) -> None:
        """Write a message. If the connection ends before its last byte left us, `mark` comes back in `lost`."""

    def dial(self, session: Session, place: object, endpoint: str, carrier: Carrier, limits: Any = None) -> Peer:
        """Connect to a place. `opened` follows when the peer has greeted, `lost` if it never does."""

    def close(self, peer: Peer, reason: str) -> None:
        """Write what is pending, then end the connection. `lost` follows."""

    def when_process_ends(self, peer: Peer, call: Callable[[float], None]) -> Callable[[], None] | None:
        """Be called, once, when this peer's process has ended. To be asked while the peer is connected: its process id
        cannot be another process's then. Returns what stops the watch, or None where a process cannot be watched."""

    def at_end_of_turn(self, call: Callable[[float], None]) -> None:
        """Be called, once, when all effects of this turn have been carried out and before anything is written."""

    def when_settled(self, peer: Peer, call: Callable[[float], object]) -> None:
        """Be called, once, when the connection has stayed open for a moment; never if it has ended by then. A worker
        that has just joined is idle from then on, and not sooner (D7)."""

    def bad_message(self, peer: Peer, reason: str, detail: str = "") -> None:
        """D6: count it, log it once a second at most, and close the connection after too many."""

    def remark(self, event: str, /, *, level: str = "info", peer: Peer | None = None, **fields: object) -> None:
        """Something an operator may want to read."""

    def complain(self, event: str, /, *, peer: Peer | None = None, **fields: object) -> None:
        """A warning about somebody who may give cause for many: a flood of causes is not a flood of lines."""


class Session(Protocol):
    """The broker's side of one listener's conversations in one dialect."""

    def opened(self, peer: Peer, now: float) -> None:
        """The carrier's handshake is done."""

    def hear(self, peer: Peer, message: Message | TooLarge, now: float) -> None: ...

    def say(self, effect: Effect, now: float) -> None:
        """Carry out an effect that concerns one of our workers or callers."""

    def lost(self, peer: Peer, unsent: Sequence[object], now: float) -> None:
        """The connection has ended; the messages with these marks never left us whole."""

    def tick(self, now: float) -> float:
        """Do what is due, and say when to come again."""
