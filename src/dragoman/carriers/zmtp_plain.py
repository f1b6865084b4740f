"""PLAIN (RFC 24 of the ZeroMQ project): a name and a password, sent unencrypted. After the handshake it is as NULL.

    client                                   server
    HELLO name, password (length in one byte each)
                                             WELCOME, or ERROR 400
    INITIATE metadata
                                             READY metadata

It proves something only where nobody else can read or write the bytes: inside TLS, on a Unix socket, on loopback.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from dragoman.carriers.malformed import Malformed
from dragoman.carriers.zmtp_commands import command, error_command, peer_error
from dragoman.carriers.zmtp_handshake import REFUSED, Handshake, Security, is_refusal
from dragoman.carriers.zmtp_limits import ZmtpLimits

MAX_BYTES: Final = 255  # of a name, and of a password: their lengths are sent in one byte


@dataclass(frozen=True, slots=True, repr=False)
class PlainServer(Security):
    """PLAIN as a server. `check(name, password)` returns whether they are accepted."""

    check: Callable[[bytes, bytes], bool]

    def handshake(self, socket_type: str, identity: bytes, dials: bool, limits: ZmtpLimits) -> Handshake:
        return PlainServerHandshake(self, socket_type, identity, dials, limits)


@dataclass(frozen=True, slots=True, repr=False)
class PlainClient(Security):
    """PLAIN as a client."""

    name: bytes
    password: bytes

    def __post_init__(self) -> None:
        for noun, value in (("name", self.name), ("password", self.password)):
            if len(value) > MAX_BYTES:
                raise ValueError(f"a {noun} of {len(value)} bytes; PLAIN allows {MAX_BYTES}")

    def handshake(self, socket_type: str, identity: bytes, dials: bool, limits: ZmtpLimits) -> Handshake:
        return PlainClientHandshake(self, socket_type, identity, dials, limits)


class PlainServerHandshake(Handshake):
    """The server's side of a handshake with PLAIN. `peer_token` is the password that was accepted."""

    __slots__ = ("_check", "_is_known")

    def __init__(
        self, security: PlainServer, socket_type: str, identity: bytes, dials: bool, limits: ZmtpLimits
    ) -> None:
        super().__init__(b"PLAIN", socket_type, identity, dials, limits, is_server=True)
        self._check = security.check
        self._is_known = False  # HELLO has come and was accepted

    def _begin(self) -> None:
        pass  # the client begins

    def _receive(self, name: bytes, rest: bytes) -> None:
        expected = b"INITIATE" if self._is_known else b"HELLO"
        if name != expected:
            raise self._unexpected(name, expected.decode())
        if not self._is_known:
            self._welcome(rest)
            return
        self._check_metadata(rest)
        self.outgoing.append(command(b"READY", self._metadata()))
        self._is_done = True

    def _welcome(self, rest: bytes) -> None:
        name, password = _name_and_password(rest)
        if not self._check(name, password):
            self.outgoing.append(error_command(REFUSED))
            detail = "the name and password of PLAIN are unknown here; correct them, and start the peer again, because"
            identity = sha256(password).digest()
            raise Malformed("unknown password", f"{detail} libzmq does not reconnect after a refusal", identity)
        self.peer_token = password
        self._is_known = True
        self.outgoing.append(command(b"WELCOME"))


class PlainClientHandshake(Handshake):
    """The client's side of a handshake with PLAIN."""

    __slots__ = ("_hello", "_is_welcome")

    def __init__(
        self, security: PlainClient, socket_type: str, identity: bytes, dials: bool, limits: ZmtpLimits
    ) -> None:
        super().__init__(b"PLAIN", socket_type, identity, dials, limits, sends_errors=False)
        fields = (security.name, security.password)
        self._hello = command(b"HELLO", b"".join(bytes((len(field),)) + field for field in fields))
        self._is_welcome = False

    def _begin(self) -> None:
        self.outgoing.append(self._hello)

    def _receive(self, name: bytes, rest: bytes) -> None:
        expected = b"READY" if self._is_welcome else b"WELCOME"
        if name == b"ERROR":
            if is_refusal(rest):
                raise Malformed("rejected", f"{self._whose} sent ERROR 400: it does not accept this name and password")
            raise peer_error(rest)
        if name != expected:
            raise self._unexpected(name, expected.decode())
        if self._is_welcome:
            self._check_metadata(rest)
            self._is_done = True
            return
        if rest:
            raise Malformed("bad handshake", f"{len(rest)} bytes after WELCOME; none are allowed")
        self._is_welcome = True
        self.outgoing.append(command(b"INITIATE", self._metadata()))


def _name_and_password(rest: bytes) -> tuple[bytes, bytes]:
    """Return the two fields of HELLO, each with its length in one byte before it. Raises Malformed."""
    after_name = 1 + rest[0] if rest else 0
    end = after_name + 1 + rest[after_name] if 0 < after_name < len(rest) else 0
    if not end or end != len(rest):
        raise Malformed("bad handshake", f"{len(rest)} bytes after HELLO that are not a name and a password")
    return rest[1:after_name], rest[after_name + 1 :]
