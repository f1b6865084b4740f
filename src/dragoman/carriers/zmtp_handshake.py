"""Greeting and handshake of ZMTP: everything before the first message. NULL is here; PLAIN and CURVE build on it.

*Greeting*, 64 bytes each way: a signature of ten bytes (ff, eight of padding, 7f), major and minor version, the name of
the security mechanism padded to twenty bytes, an as-server flag, and 31 bytes of filler. Padding and filler mean
nothing: libzmq writes the length of its identity into the padding, which ZMTP 1 took for a frame's length. The
as-server flag is written and never judged, because libzmq leaves it 0 as a server, too. This side sends its greeting at
once, and checks the other one as its bytes arrive: a peer of ZMTP 1 or 2 stops halfway and waits, so a broker that
waits for the 64th byte would never detect it.

*Handshake*, commands that the mechanism defines. They end with metadata in both directions: properties, of which
Socket-Type and Identity are used. With NULL these are one command each way: READY, or ERROR.

Both sides must use the same mechanism. Nothing is negotiated, so an attacker between them cannot choose a weaker one.
"""

from __future__ import annotations

from typing import Final

from dragoman.carriers.malformed import Malformed
from dragoman.carriers.zmtp_commands import (
    ACCEPTED,
    GREETING_BYTES,
    command,
    error_command,
    greeting,
    parse_properties,
    peer_error,
    property_of,
    read_greeting,
    reason_in,
    shown,
    span_of_command,
    split_command,
)
from dragoman.carriers.zmtp_limits import ZmtpLimits

SET_UP: Final = {
    b"NULL": "without keys and passwords",
    b"PLAIN": "with a name and a password (PLAIN)",
    b"CURVE": "with CURVE keys",
}


REFUSED: Final = b"400"  # the reason in ERROR for which libzmq reports a failed authentication; it ignores words


def is_refusal(rest: bytes) -> bool:
    """True if the rest of an ERROR means that the name, password or key is not accepted."""
    return reason_in(rest) == REFUSED


class Handshake:
    """One side of a greeting and a handshake. The carrier collects the bytes, and drops this object afterwards."""

    # fmt: off
    __slots__ = (
        "_dials", "_identity", "_is_done", "_is_greeted", "_limits", "_mechanism", "_pos", "_sends_errors",
        "_socket_type", "_whose", "outgoing", "peer_identity", "peer_key", "peer_mechanism", "peer_socket_type",
        "peer_token", "peer_version",
    )
    # fmt: on

    def __init__(
        self,
        mechanism: bytes,
        socket_type: str,
        identity: bytes,
        dials: bool,
        limits: ZmtpLimits,
        *,
        is_server: bool = False,
        sends_errors: bool = True,
    ) -> None:
        if socket_type not in ACCEPTED:
            raise ValueError(f"socket type {socket_type!r} is not one of {', '.join(ACCEPTED)}")
        if len(identity) > limits.max_identity:
            raise ValueError(f"an identity of {len(identity)} bytes is over max_identity {limits.max_identity}")
        self.outgoing: list[bytes] = [greeting(mechanism, is_server)]  # bytes to send; the carrier takes them
        self.peer_identity = b""
        self.peer_socket_type = ""
        self.peer_version = (0, 0)
        self.peer_mechanism = b""  # as its greeting names it; empty until then
        self.peer_key = b""  # the public key that the peer has proven to hold (CURVE)
        self.peer_token = b""  # the password that the peer has sent (PLAIN)
        self._mechanism = mechanism
        self._socket_type = socket_type
        self._identity = identity
        self._dials = dials
        self._whose = "the dialled address" if dials else "the peer that connected"
        self._limits = limits
        self._sends_errors = sends_errors  # with PLAIN and CURVE only servers send ERROR
        self._is_greeted = False
        self._is_done = False
        self._pos = GREETING_BYTES  # of the next command

    def take_outgoing(self) -> list[bytes]:
        outgoing, self.outgoing = self.outgoing, []
        return outgoing

    def advance(self, held: bytes) -> bytes | None:
        """Process all bytes that have come so far. Returns those after the handshake, or None if it is not done. Raises
        Malformed."""
        if not self._is_greeted:
            self._check_greeting(held)
            if len(held) < GREETING_BYTES:
                return None
            self._is_greeted = True
            self._begin()
        while not self._is_done:
            start, end = span_of_command(held, self._pos, self._limits.max_handshake)
            if not start or end > len(held):
                return None
            self._pos = end
            name, rest = split_command(held[start:end])
            self._receive(name, rest)
        return held[self._pos :]

    def probable_cause(self) -> str:
        """Return a sentence for the case that the peer closes the connection now, or an empty string."""
        if self._is_greeted:
            return ""
        mechanism = self._mechanism.decode()
        return f"{self._whose} closed the connection during the greeting; it may use another mechanism than {mechanism}"

    def _begin(self) -> None:
        """Send the first command, if this side sends it. The greeting of the peer is complete."""
        raise NotImplementedError

    def _receive(self, name: bytes, rest: bytes) -> None:
        """Process a command of the peer. Raises Malformed."""
        raise NotImplementedError

    def _check_greeting(self, held: bytes) -> None:
        version, mechanism = read_greeting(held, self._whose)
        if version is not None:
            self.peer_version = version
        if mechanism is not None:
            self.peer_mechanism = mechanism
            if mechanism != self._mechanism:
                raise self._other_mechanism(mechanism)

    def _other_mechanism(self, theirs: bytes) -> Malformed:
        ours = self._mechanism.decode()
        wanted = f"{self._whose} wants {shown(theirs) or 'no mechanism'}"
        if not self._dials:
            return Malformed(
                "mechanism", f"{wanted}; only {ours} is accepted here: set up the peer {SET_UP[self._mechanism]}"
            )
        if theirs in SET_UP:
            return Malformed("mechanism", f"{wanted}, and this side uses {ours}: set up this side {SET_UP[theirs]}")
        return Malformed("mechanism", f"{wanted}; only {', '.join(each.decode() for each in SET_UP)} are supported")

    def _unexpected(self, name: bytes, expected: str) -> Malformed:
        return Malformed("bad handshake", f"the command {shown(name)} came; {expected} is expected")

    def _metadata(self) -> bytes:
        return property_of(b"Socket-Type", self._socket_type.encode()) + property_of(b"Identity", self._identity)

    def _check_metadata(self, metadata: bytes) -> None:
        properties = parse_properties(metadata, self._limits.max_metadata)
        socket_type = shown(properties.get(b"socket-type", b"(none)"))
        accepted = ACCEPTED[self._socket_type]
        if socket_type not in accepted:
            wanted = " or ".join(accepted)
            raise self._refusal("socket type", f"{socket_type} came to a {self._socket_type}, which accepts {wanted}")
        identity = properties.get(b"identity", b"")
        longest = self._limits.max_identity
        if len(identity) > longest:
            raise Malformed("identity too long", f"an identity of {len(identity)} bytes; max_identity is {longest}")
        self.peer_socket_type = socket_type
        self.peer_identity = identity

    def _refusal(self, reason: str, detail: str) -> Malformed:
        """Send ERROR to the peer, if this side may, and return the failure."""
        if self._sends_errors:
            self.outgoing.append(error_command(detail.encode("ascii", "backslashreplace")))
        return Malformed(reason, detail)


class NullHandshake(Handshake):
    """One side of a handshake with NULL: no encryption and no identity that is proven."""

    __slots__ = ()

    def __init__(self, socket_type: str, identity: bytes, dials: bool, limits: ZmtpLimits) -> None:
        super().__init__(b"NULL", socket_type, identity, dials, limits)

    def _begin(self) -> None:
        self.outgoing.append(command(b"READY", self._metadata()))

    def _receive(self, name: bytes, rest: bytes) -> None:
        if name == b"ERROR":
            raise peer_error(rest)
        if name != b"READY":
            raise self._unexpected(name, "READY")
        self._check_metadata(rest)
        self._is_done = True

    def _other_mechanism(self, theirs: bytes) -> Malformed:
        failure = super()._other_mechanism(theirs)
        return self._refusal(failure.reason, failure.detail)


class Security:
    """A security mechanism with its keys or passwords, for all connections of a listener or a client."""

    __slots__ = ()

    @property
    def is_encrypted(self) -> bool:
        """True if messages are encrypted after the handshake."""
        return False

    def handshake(self, socket_type: str, identity: bytes, dials: bool, limits: ZmtpLimits) -> Handshake:
        """Return one side of a new handshake."""
        raise NotImplementedError


class NullSecurity(Security):
    """NULL: no encryption and no identity."""

    __slots__ = ()

    def handshake(self, socket_type: str, identity: bytes, dials: bool, limits: ZmtpLimits) -> Handshake:
        return NullHandshake(socket_type, identity, dials, limits)


NULL: Final = NullSecurity()
