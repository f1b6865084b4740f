"""Interface between the runner and a dialect's broker side: the callbacks it receives, and the calls it may make.

A broker side translates messages into calls of the broker, and the broker's effects into messages. It does no I/O,
reads no clock and writes no log: it calls BrokerIO, and the runner performs, counts and logs. These are method calls
and not request objects on a list: at three messages a job, the objects would cost more than the translation.
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
    """The remote side of one connection."""

    # fmt: off
    __slots__ = (
        "address", "closed_in_order", "closing", "identity", "label", "process", "remote", "session", "since",
        "socket_name",
    )
    # fmt: on

    session: BrokerSide
    remote: Any  # the broker side's own record of this connection; the runner does not use it
    socket_name: str  # name of the listener socket that accepted it, or the name it was dialled under
    identity: bytes  # its routing id, or empty; not authenticated
    label: str  # its name in logs
    since: float  # time of the connection's start
    address: str  # its machine, or its user on this machine; equal for all their connections
    process: int  # process id on this machine, or 0 if the kernel does not know it
    closing: str | None  # the reason for its end, once it is being closed or has ended
    closed_in_order: bool  # it closed the connection after receiving everything that was sent; valid in `lost`


@mypyc_attr(allow_interpreted_subclasses=True)
class BrokerIO:
    """I/O operations that a broker side may call."""

    def send(self, to: Connection, frames: Sequence[Frame], tag: object = None) -> None:
        """Send a message. If the connection ends before its last byte was sent, `lost` receives `tag`."""
        raise NotImplementedError

    def dial(
        self, session: BrokerSide, place: object, socket_name: str, carrier: Carrier, owner: Owner, limits: Any = None
    ) -> Connection:
        """Connect to an address, on behalf of `owner`. `opened` follows after the handshake, or `lost`."""
        raise NotImplementedError

    def unsent(self, whom: Connection) -> int:
        """Return the bytes that wait to be sent. If there are many, an iteration follows when they have become few."""
        raise NotImplementedError

    def close(self, whom: Connection, reason: str) -> None:
        """Send what is pending, then close the connection. `lost` follows."""
        raise NotImplementedError

    def when_process_ends(self, whose: Connection, call: Callable[[float], None]) -> Callable[[], None] | None:
        """Call back once when the process of this connection has ended. Use it while the connection is open: then the
        process id cannot belong to another process. Returns a function that cancels this, or None if impossible."""
        raise NotImplementedError

    def call_before_write(self, call: Callable[[float], None]) -> None:
        """Call back once when all effects of this iteration have been executed, before anything is written."""
        raise NotImplementedError

    def when_settled(self, whose: Connection, call: Callable[[float], object]) -> None:
        """Call back once when the connection has stayed open for a moment; never if it has ended by then. A worker that
        has just joined becomes idle then, not earlier (D7)."""
        raise NotImplementedError

    def bad_message(self, sender: Connection, reason: str, detail: str = "") -> None:
        """Count a bad message, log it at most once a second, and close the connection after too many (D6)."""
        raise NotImplementedError

    def remark(self, event: str, /, *, level: str = "info", peer: Connection | None = None, **fields: object) -> None:
        """Log an event."""
        raise NotImplementedError

    def remark_limited(self, event: str, /, *, peer: Connection, level: str = "info", **fields: object) -> None:
        """Log an event that a connection may cause often: at most one line a second per connection."""
        raise NotImplementedError

    def log_limited(self, event: str, /, *, peer: Connection | None = None, **fields: object) -> None:
        """Log a warning that may have many causes at once: the number of lines is limited."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class BrokerSide(TimedRecipient):
    """The broker's side of one listener: a state machine for all its connections, without I/O."""

    def opened(self, peer: Connection, now: float) -> None:
        """Start a connection, because the carrier's handshake is done."""
        raise NotImplementedError

    def receive(self, peer: Connection, message: Message | TooLarge, now: float) -> None:
        raise NotImplementedError

    def refusal(self, reason: str) -> Sequence[Frame] | None:
        """Return the message that tells a connection why it is not admitted; None: the dialect has no such message."""
        return None

    def lost(self, peer: Connection, unsent: Sequence[object], now: float) -> None:
        """End a connection. Messages with the tags in `unsent` were not sent completely."""
        raise NotImplementedError
