"""Greeting and handshake of ZMTP with the NULL mechanism: everything before the first message.

*Greeting*, 64 bytes each way: a signature of ten bytes (ff, eight of padding, 7f), major and minor version, the name of
the security mechanism padded to twenty bytes, an as-server flag that NULL leaves 0, and 31 bytes of filler. Padding and
filler mean nothing: libzmq writes the length of its identity into the padding, which ZMTP 1 took for a frame's length.
This side sends its greeting at once, and checks the other one as its bytes arrive: a peer of ZMTP 1 or 2 stops halfway
and waits, so a broker that waits for the 64th byte would never detect it.

*Handshake*, one command each way: READY with properties, of which Socket-Type and Identity are used; or ERROR.
"""

from __future__ import annotations

from dragoman.carriers.malformed import Malformed
from dragoman.carriers.zmtp_commands import (
    ACCEPTED,
    MECHANISM,
    OUR_GREETING,
    command,
    parse_properties,
    peer_error,
    property_of,
    read_greeting,
    shown,
    span_of_ready,
    split_command,
)
from dragoman.carriers.zmtp_limits import ZmtpLimits


class Handshake:
    """One side of a greeting and a handshake. The carrier collects the bytes, and drops this object afterwards."""

    __slots__ = (
        "_identity",
        "_is_greeted",
        "_limits",
        "_socket_type",
        "_whose",
        "outgoing",
        "peer_identity",
        "peer_socket_type",
        "peer_version",
    )

    def __init__(self, socket_type: str, identity: bytes, dials: bool, limits: ZmtpLimits) -> None:
        if socket_type not in ACCEPTED:
            raise ValueError(f"socket type {socket_type!r} is not one of {', '.join(ACCEPTED)}")
        if len(identity) > limits.max_identity:
            raise ValueError(f"an identity of {len(identity)} bytes is over max_identity {limits.max_identity}")
        self.outgoing: list[bytes] = [OUR_GREETING]  # bytes to send; the carrier takes them
        self.peer_identity = b""
        self.peer_socket_type = ""
        self.peer_version = (0, 0)
        self._socket_type = socket_type
        self._identity = identity
        self._whose = "the dialled address" if dials else "the peer that connected"  # the only difference under NULL
        self._limits = limits
        self._is_greeted = False

    def take_outgoing(self) -> list[bytes]:
        outgoing, self.outgoing = self.outgoing, []
        return outgoing

    def advance(self, held: bytes) -> bytes | None:
        """Process all bytes that have come so far. Returns those after the handshake, or None if it is not done. Raises
        Malformed."""
        if not self._is_greeted:
            self._check_greeting(held)
            if len(held) < len(OUR_GREETING):
                return None
            self._is_greeted = True
            ours = property_of(b"Socket-Type", self._socket_type.encode()) + property_of(b"Identity", self._identity)
            self.outgoing.append(command(b"READY", ours))
        start, end = span_of_ready(held, self._limits.max_handshake)
        if not start or end > len(held):
            return None
        name, rest = split_command(held[start:end])
        if name == b"ERROR":
            raise peer_error(rest)
        if name != b"READY":
            raise Malformed("bad handshake", f"the command {shown(name)} came before READY")
        self._check_properties(parse_properties(rest, self._limits.max_metadata))
        return held[end:]

    def _check_greeting(self, held: bytes) -> None:
        version, mechanism = read_greeting(held, self._whose)
        if version is not None:
            self.peer_version = version
        if mechanism is not None and mechanism != MECHANISM:
            raise self._refusal("mechanism", f"{self._whose} wants {shown(mechanism)}; only NULL is supported")

    def _check_properties(self, properties: dict[bytes, bytes]) -> None:
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
        """Send ERROR to the peer, and return the failure."""
        text = detail.encode("ascii", "backslashreplace")[:255]
        self.outgoing.append(command(b"ERROR", bytes((len(text),)) + text))
        return Malformed(reason, detail)
