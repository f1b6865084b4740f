"""The seam between the line and the dialects: what a session is told, and what it may ask for.

A session translates: messages of its peers into the broker's verbs, and the broker's effects into messages. It does no
I/O, reads no clock and logs nothing. What it wants done in the world it asks of the line, which performs, counts and
logs. These are calls on an object passed in, not request objects put on a list: at three messages a job the objects
would cost more than the translation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mypy_extensions import mypyc_attr

from dragoman.carriers.carrier import Carrier, Frame, Message, TooLarge
from dragoman.core.model import Caller
from dragoman.core.owners import Owner
from dragoman.core.recipients import TimedRecipient


@mypyc_attr(allow_interpreted_subclasses=True)
class Connection(Caller):
    """One connection's other end."""

    __slots__ = (
        "address",
        "closed_in_order",
        "identity",
        "label",
        "owner",
        "process",
        "remote",
        "session",
        "since",
        "socket_name",
    )

    session: BrokerSide
    remote: Any  # the session's own record of this peer; the line never looks at it
    socket_name: str  # which of the session's places it came by, or the name it was dialled under
    identity: bytes  # its routing id, or empty. A name, not a proof
    label: str  # how logs call it
    since: float  # when it came
    address: str  # which machine it is on, or which user's it is on this one: all its connections have the same
    owner: Owner  # whose limits its jobs count for
    process: int  # the id of its process on this machine, or 0 if the kernel does not tell
    closed_in_order: bool  # it has closed its connection itself and received all that was sent; known in `lost`


@mypyc_attr(allow_interpreted_subclasses=True)
class BrokerIO:
    """What a session may ask for."""

    def send(self, to: Connection, frames: Sequence[Frame], tag: object = None) -> None:
        """Write a message. If the connection ends before its last byte left us, `mark` comes back in `lost`."""
        raise NotImplementedError

    def dial(
        self, session: BrokerSide, place: object, socket_name: str, carrier: Carrier, limits: Any = None
    ) -> Connection:
        """Connect to a place. `opened` follows when the peer has greeted, `lost` if it never does."""
        raise NotImplementedError

    def close(self, whom: Connection, reason: str) -> None:
        """Write what is pending, then end the connection. `lost` follows."""
        raise NotImplementedError

    def when_process_ends(self, whose: Connection, call: Callable[[float], None]) -> Callable[[], None] | None:
        """Be called, once, when this peer's process has ended. To be asked while the peer is connected: its process id
        cannot be another process's then. Returns what stops the watch, or None where a process cannot be watched."""
        raise NotImplementedError

    def call_before_write(self, call: Callable[[float], None]) -> None:
        """Be called, once, when all effects of this turn have been carried out and before anything is written."""
        raise NotImplementedError

    def when_settled(self, whose: Connection, call: Callable[[float], object]) -> None:
        """Be called, once, when the connection has stayed open for a moment; never if it has ended by then. A worker
        that has just joined is idle from then on, and not sooner (D7)."""
        raise NotImplementedError

    def bad_message(self, sender: Connection, reason: str, detail: str = "") -> None:
        """D6: count it, log it once a second at most, and close the connection after too many."""
        raise NotImplementedError

    def remark(self, event: str, /, *, level: str = "info", peer: Connection | None = None, **fields: object) -> None:
        """Something an operator may want to read."""
        raise NotImplementedError

    def remark_limited(self, event: str, /, *, peer: Connection, level: str = "info", **fields: object) -> None:
        """The same, for something that a peer may do often: one line a second about each."""
        raise NotImplementedError

    def log_limited(self, event: str, /, *, peer: Connection | None = None, **fields: object) -> None:
        """A warning about somebody who may give cause for many: a flood of causes is not a flood of lines."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class BrokerSide(TimedRecipient):
    """The broker's side of one listener's conversations in one dialect."""

    def opened(self, peer: Connection, now: float) -> None:
        """The carrier's handshake is done."""
        raise NotImplementedError

    def receive(self, peer: Connection, message: Message | TooLarge, now: float) -> None:
        raise NotImplementedError

    def lost(self, peer: Connection, unsent: Sequence[object], now: float) -> None:
        """The connection has ended; the messages with these marks never left us whole."""
        raise NotImplementedError
