"""ZMTP's greeting and commands as bytes. Functions without state.

A greeting is 64 bytes; a command is a frame with the flag 4, whose body is a name (length in one byte) and the rest.
READY's rest is properties (metadata): each a name (length in one byte) and a value (length in four).
"""

from __future__ import annotations

from typing import Final

from dragoman.carriers.malformed import Malformed

MORE: Final = 1
LONG: Final = 2
COMMAND: Final = 4
RESERVED: Final = 0xF8

MAX_CONTEXT: Final = 16  # RFC 37: the context of a PING is at most 16 octets


def greeting(mechanism: bytes, is_server: bool = False) -> bytes:
    head = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01" + mechanism.ljust(20, b"\0")
    return head + bytes((is_server,)) + bytes(31)


OUR_GREETING: Final = greeting(b"NULL")
GREETING_BYTES: Final = 64

ACCEPTED: Final = {
    "ROUTER": ("DEALER", "REQ", "ROUTER"),
    "DEALER": ("ROUTER", "REP"),
    "REP": ("REQ", "DEALER"),
    "REQ": ("REP", "ROUTER"),
}


def read_greeting(held: bytes, whose: str) -> tuple[tuple[int, int] | None, bytes | None]:
    """Return the version and the mechanism of a greeting, each None until its bytes have size. Raises Malformed.

    A wrong first byte waits for the second, because both are needed to recognise ZMTP 1: its greeting is a frame, a
    length of one byte (or of ff and eight) and then flags, 0.
    """
    size = len(held)
    flags_of_zmtp_1 = 9 if held[:1] == b"\xff" else 1
    if size > flags_of_zmtp_1 and held[0] and not held[flags_of_zmtp_1]:
        raise Malformed("old zmtp", f"{whose} speaks ZMTP 1 (libzmq 2); libzmq 4 or newer is needed")
    if size >= 2 and held[0] != 0xFF:
        raise Malformed("not zmtp", f"{whose} does not speak ZMTP; it looks like {_looks_like(held[:2])}")
    if size >= 10 and held[9] != 0x7F:
        raise Malformed("not zmtp", f"{whose} began like ZMTP, but its signature ends in 0x{held[9]:02x}")
    if size >= 11 and held[10] < 3:
        raise Malformed("old zmtp", f"{whose} speaks ZMTP 2 (libzmq 3); libzmq 4 or newer is needed")
    version = mechanism = None
    if size >= 12:
        # A peer newer than 3.1 must downgrade to it.
        version = (3, 0) if held[10:12] == b"\x03\x00" else (3, 1)
    if size >= 32:
        mechanism = held[12:32].rstrip(b"\0")
    return version, mechanism


def named(name: bytes, rest: bytes = b"") -> bytes:
    """Return the body of a command."""
    return bytes((len(name),)) + name + rest


def command(name: bytes, rest: bytes = b"") -> bytes:
    """Return a command as a frame."""
    return framed(named(name, rest))


def framed(body: bytes) -> bytes:
    """Return the frame of a command with this body."""
    if len(body) < 256:
        return bytes((COMMAND, len(body))) + body
    return bytes((COMMAND | LONG,)) + len(body).to_bytes(8, "big") + body


def ping(ttl_tenths: int, context: bytes) -> bytes:
    """Return the body of a PING. `ttl_tenths`: tenths of a second of silence after which the peer may disconnect, or
    0."""
    if len(context) > MAX_CONTEXT:
        raise ValueError(f"a PING context of {len(context)} bytes; at most {MAX_CONTEXT} are allowed")
    return named(b"PING", ttl_tenths.to_bytes(2, "big") + context)


def answer_to(body: bytes) -> bytes | None:
    """Return the body of the reply to a command after the handshake: PONG to a PING, None to others. Raises
    Malformed."""
    name, rest = split_command(body)
    if name == b"ERROR":
        raise peer_error(rest)
    if name != b"PING":
        return None
    context = rest[2:]  # after the ttl, which requests to drop silent peers: the leases of the dialects do that
    if len(rest) < 2 or len(context) > MAX_CONTEXT:
        raise Malformed("bad ping", f"{len(rest)} bytes after PING; 2 of ttl are due and 16 of context allowed")
    return named(b"PONG", context)


def split_command(body: bytes) -> tuple[bytes, bytes]:
    end = 1 + body[0] if body else 0
    if not 1 < end <= len(body):
        raise Malformed("bad command", f"a command of {len(body)} bytes without a name that fits")
    return body[1:end], body[end:]


def check_command_flags(flags: int) -> None:
    if flags & RESERVED:
        raise Malformed("bad flags", f"a frame with flags 0x{flags:02x}, of which 0xf8 are reserved")
    if flags & MORE:
        raise Malformed("bad flags", "a command with the flag *more*; a command is a single frame")


def property_of(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value


def parse_properties(rest: bytes, max_metadata: int) -> dict[bytes, bytes]:
    """Parse properties; names in lower case, since case is insignificant. Duplicates, not in RFC 37, are an error."""
    if len(rest) > max_metadata:
        raise Malformed("bad metadata", f"{len(rest)} bytes of properties; max_metadata is {max_metadata}")
    properties: dict[bytes, bytes] = {}
    pos = 0
    while pos < len(rest):
        after_name = pos + 1 + rest[pos]
        start = after_name + 4
        end = start + int.from_bytes(rest[after_name:start], "big")
        name = rest[pos + 1 : after_name].lower()
        if not name or end > len(rest):
            raise Malformed("bad metadata", f"the property at byte {pos} of READY has no name or ends beyond it")
        if name in properties:
            raise Malformed("bad metadata", f"the property {shown(name)} came twice")
        properties[name] = rest[start:end]
        pos = end
    return properties


def span_of_command(held: bytes, begin: int, max_handshake: int) -> tuple[int, int]:
    """Return start and end of the body of the command of a handshake at `begin`; zeros while they are not known."""
    if len(held) == begin:
        return 0, 0
    flags = held[begin]
    if flags < COMMAND:
        raise Malformed("traffic before ready", "a frame of a message came before READY")
    check_command_flags(flags)
    start = begin + (9 if flags & LONG else 2)
    if len(held) < start:
        return 0, 0
    end = start + int.from_bytes(held[begin + 1 : start], "big")
    if end > max_handshake:
        raise Malformed("bad handshake", f"{end} bytes of greeting and handshake; max_handshake is {max_handshake}")
    return start, end


def error_command(reason: bytes) -> bytes:
    """Return an ERROR. Only the first 255 bytes of its reason are sent."""
    reason = reason[:255]
    return command(b"ERROR", bytes((len(reason),)) + reason)


def reason_in(rest: bytes) -> bytes:
    """Return the reason in the rest of an ERROR."""
    return rest[1 : 1 + rest[0]] if rest else b""


def peer_error(rest: bytes) -> Malformed:
    return Malformed("peer error", f"the peer sent ERROR: {shown(reason_in(rest)) or 'no reason given'}")


def shown(raw: bytes) -> str:
    """Escape and shorten bytes from a peer for a log line."""
    return repr(raw[:80])[2:-1] + ("..." if len(raw) > 80 else "")


def _looks_like(two: bytes) -> str:
    return STRANGERS.get(two) or f"nothing known (it began with {two.hex(' ')})"


STRANGERS: Final = {
    **dict.fromkeys((b"GE", b"PO", b"HE", b"PU", b"DE", b"OP", b"PA", b"CO", b"TR"), "an HTTP request"),
    b"HT": "an HTTP response",
    b"PR": "HTTP/2",
    b"\x00S": "SP, the protocol of nanomsg and NNG",
    b"\x16\x03": "TLS",
    b"\x15\x03": "TLS (an alert)",
    b"SS": "SSH",
}
