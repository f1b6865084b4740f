"""Identifies the protocol of a port that does not speak the dialect of the address.

The first bytes identify the carrier: ZMTP and SP send a greeting to every new connection, an HTTP server responds to a
request, and other servers send banners. All dialects on ZMTP start alike, so a Dragoman broker receives two probe
messages that are not a job in any dialect; its replies identify the dialect. Other ZeroMQ sockets, which have another
greeting, receive no probe, because its effect there is unknown.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from dragoman.carriers.carrier import Frame, Message
from dragoman.carriers.zmtp_commands import GREETING_BYTES, OUR_GREETING, greeting
from dragoman.carriers.zmtp_limits import DEFAULT_LIMITS
from dragoman.sdk.address import SocketAddress, TlsAddress, UnixAddress
from dragoman.sdk.dialect_sides import dialling_zmtp
from dragoman.sdk.errors import BrokerUnavailable, NotAllowed, WrongDialect
from dragoman.sdk.outgoing import OutgoingConnection, Ungreeted
from dragoman.sdk.proof import Proof
from dragoman.sdk.targets import Target
from dragoman.streams.dial import connect

SILENCE_LIMIT = 1.0  # seconds without a message after which a port is identified
BANNER_TIMEOUT = 0.3  # seconds to wait for a greeting or a banner
RESPONSE_TIMEOUT = 0.9  # seconds to wait for a response to REQUEST
PROBE_TIMEOUT = 0.8  # seconds to wait for a broker's reply to a probe
READ_BYTES = 4096

REQUEST = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
SPEAKS_TLS = b"\r\n\r\nthis port speaks TLS: use https://"  # response of a broker to a request without TLS
ALIVE = b"\r\n\r\nalive\n"
OUR_GREETINGS = (OUR_GREETING, *(greeting(each, is_server=True) for each in (b"CURVE", b"PLAIN")))
# Probes: a PING of PingPong with a count, and a service lookup (mmi.service) of Majordomo. Neither is a job in any
# dialect.
PING: tuple[bytes, ...] = (b"", b"PING", b"0")
LOOK_UP: tuple[bytes, ...] = (b"", b"MDPC01", b"mmi.service", b"mmi.service")
Probes = Sequence[Sequence[Sequence[Frame]]]
NATIVE_TYPES = (b"\x02", b"\x03")  # message types WELCOME and ERROR


class ListenerKind(Enum):
    """Kind of the listener at a port."""

    NATIVE = "native"
    PINGPONG_WORKERS = "pingpong workers"
    POWERHOSE_WORKERS = "powerhose workers"
    PLAIN_CALLERS = "plain callers"  # PingPong and Powerhose have the same frontend
    MAJORDOMO = "majordomo"
    MEMODB = "memodb"
    HTTP = "http"
    ZMTP = "zmtp"  # a ZeroMQ socket that is not Dragoman's
    TLS = "tls"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """An identified listener."""

    kind: ListenerKind
    predicate: str  # predicate of the error message: *the port …*


# The expected kind of port, by dialect and by role of the connecting side.
EXPECTED = {
    ("pingpong", "client"): ListenerKind.PLAIN_CALLERS,
    ("powerhose", "client"): ListenerKind.PLAIN_CALLERS,
    ("pingpong", "worker"): ListenerKind.PINGPONG_WORKERS,
    ("powerhose", "worker"): ListenerKind.POWERHOSE_WORKERS,
    **{
        (each.value, role): each
        for each in (ListenerKind.NATIVE, ListenerKind.MAJORDOMO, ListenerKind.MEMODB, ListenerKind.HTTP)
        for role in ("client", "worker")
    },
}
_PREDICATES = {
    ListenerKind.NATIVE: "speaks the native dialect over ZMTP (a ROUTER socket)",
    ListenerKind.PINGPONG_WORKERS: "speaks PingPong over ZMTP (a ROUTER socket, for workers)",
    ListenerKind.POWERHOSE_WORKERS: "speaks Powerhose over ZMTP (a ROUTER socket, for workers)",
    ListenerKind.PLAIN_CALLERS: "speaks PingPong or Powerhose over ZMTP (a ROUTER socket, for callers)",
    ListenerKind.MAJORDOMO: "speaks Majordomo over ZMTP (a ROUTER socket)",
    ListenerKind.MEMODB: "speaks MemoDB over SP (a REP socket)",
    ListenerKind.HTTP: "speaks HTTP",
}
OPERATION_ADVICE = (
    "this request needs a native (tcp://, ipc://) or HTTP (http://) address of the broker, which it prints when it "
    "starts"
)
_ANY_DIALECT = (ListenerKind.UNKNOWN, ListenerKind.TLS)
_SILENT = Finding(ListenerKind.UNKNOWN, "accepts connections but sends nothing")
_BANNERS = (
    (b"HTTP/", "speaks HTTP, but is not a broker"),
    (b"SSH-", "speaks SSH"),
    (b"-ERR", "speaks the protocol of Redis"),
    (b"220 ", "speaks SMTP or FTP"),
)


# Replies of a worker port to a wrong client. A caller would take them for a result, a worker for a job.
SUSPICIOUS = (b"PONG", b"ERROR")


class Recognition:
    """Checks that an address has the expected dialect, for all connections of a client or a worker. After the first
    valid message the address is known to be right and no check follows."""

    def __init__(self, target: Target, role: str) -> None:
        self._target = target
        self._role = role
        self._is_doubtful = False  # the last connection probably ended in a refusal
        self.is_known = False

    @property
    def _is_proven_by_greeting(self) -> bool:
        return EXPECTED[self._target.dialect.name, self._role] in (ListenerKind.MEMODB, ListenerKind.HTTP)

    async def problem(self, *, thorough: bool = False) -> WrongDialect | None:
        """Return an error that names the port's protocol, or None if the port may be right."""
        if self.is_known or isinstance(self._target.place, TlsAddress):  # errors of TLS name the problem themselves
            return None
        problem = await wrong_port(self._target, self._role, thorough)
        return None if problem is None or self.is_known else problem

    async def open(self, opening: Coroutine[Any, Any, OutgoingConnection]) -> OutgoingConnection:
        """Return the connection. If its handshake is slow or fails, find the reason. Raises BrokerUnavailable, or its
        subclasses NotAllowed and WrongDialect."""
        try:
            link = await (opening if self.is_known else self._open_unknown(opening))
        except Ungreeted as error:
            raise await self._reason(error) from None
        self._is_doubtful = False
        return link

    async def _open_unknown(self, opening: Coroutine[Any, Any, OutgoingConnection]) -> OutgoingConnection:
        """Return the connection to a port that has not been identified yet."""
        task = asyncio.ensure_future(opening)
        try:
            await asyncio.wait({task}, timeout=SILENCE_LIMIT)
            if not task.done():
                problem = await self.problem()
                if problem is not None and not task.done():
                    raise problem
            link = await task
            self.is_known = self._is_proven_by_greeting
            return link
        finally:
            if not task.done():
                task.cancel()
            elif not task.cancelled():
                task.exception()  # retrieved, so that asyncio does not log it

    async def _reason(self, error: Ungreeted) -> BrokerUnavailable:
        """Return the error about a failed handshake: this side is not accepted, or the port has another protocol."""
        from dragoman.sdk.refusals import ProbableRefusal, refusal_of, silent_refusal

        refusal = refusal_of(self._target.place, self._target.proof, error.carrier)
        if refusal is None and error.is_silent_tls:
            refusal = silent_refusal(self._target.place)
        was_doubtful, self._is_doubtful = self._is_doubtful, isinstance(refusal, ProbableRefusal)
        if was_doubtful and self._is_doubtful:
            return NotAllowed(str(refusal))
        return refusal or await self.problem(thorough=True) or error


async def wrong_port(target: Target, role: str, thorough: bool) -> WrongDialect | None:
    """Return an error about a port that has another protocol, or None if the port may be right. `role`: client or
    worker. `thorough`: the port has sent an unexpected message, so all probes may be sent to it."""
    dialect, place = target.dialect, target.place
    finding = await _identify(target, EXPECTED[dialect.name, role], thorough)
    if finding is None or (thorough and finding is _SILENT):  # the caller's own error is more precise
        return None
    scheme = "ipc" if isinstance(place, UnixAddress) else "tcp"
    own = "the native dialect" if dialect.name == "native" else dialect.title
    other = "" if finding.kind in _ANY_DIALECT or own in finding.predicate else f", not {own}"
    found = f"{scheme}://{place} {finding.predicate}{other}"
    if finding.kind is ListenerKind.TLS:
        address = f"https://{place}" if dialect.name == "http" else f"{dialect.name}+tls://{place}"
        return WrongDialect(f"{found}; use {address}, or check the broker's host and port")
    advice = _advice(finding.kind, role, scheme, place)
    has_operations = finding.kind in (ListenerKind.NATIVE, ListenerKind.HTTP, ListenerKind.UNKNOWN)
    return WrongDialect(f"{found}; {advice}", f"{found}; {advice if has_operations else OPERATION_ADVICE}")


def _advice(kind: ListenerKind, role: str, scheme: str, place: SocketAddress) -> str:
    if kind is ListenerKind.UNKNOWN:
        return "check the broker's host and port"
    if kind is ListenerKind.ZMTP:
        return f"name the dialect of the broker in the address, such as pingpong+{scheme}://{place}"
    if kind is ListenerKind.PLAIN_CALLERS and role == "worker":
        return "workers connect to the backend, which has a port of its own"
    if kind in (ListenerKind.PINGPONG_WORKERS, ListenerKind.POWERHOSE_WORKERS) and role == "client":
        return "callers connect to the frontend, which has a port of its own"
    name = "pingpong" if kind is ListenerKind.PLAIN_CALLERS else kind.value.partition(" ")[0]
    native = "" if name == "native" else f"{name}+"
    return f"use http://{place}" if name == "http" and scheme == "tcp" else f"use {native}{scheme}://{place}"


async def _identify(target: Target, expected: ListenerKind, thorough: bool) -> Finding | None:
    loop = asyncio.get_running_loop()
    try:
        connection = await connect(loop, target.place, SILENCE_LIMIT)
    except OSError:
        return None
    try:
        data = await _read(connection, BANNER_TIMEOUT)
        if data is None:
            await loop.sock_sendall(connection, REQUEST)
            data = await _read(connection, RESPONSE_TIMEOUT)
            while data is not None and data.startswith(b"HTTP/") and ALIVE not in data and len(data) < READ_BYTES:
                more = await _read(connection, BANNER_TIMEOUT)
                if not more:
                    break
                data += more
        return await _classify(target, data, expected, thorough)
    except OSError:
        return None
    finally:
        connection.close()


async def _classify(target: Target, data: bytes | None, expected: ListenerKind, thorough: bool) -> Finding | None:
    """Return the finding, or None if the port is as expected. A server that closes at once may only be overloaded."""
    if data is None:
        return _SILENT
    if not data:
        return None
    kind: ListenerKind | None = None
    if data.startswith(b"\xff"):
        kind = await _probe_zmtp(target, _probes(expected, thorough))
        if kind is ListenerKind.ZMTP:
            is_wrong = expected in (ListenerKind.NATIVE, ListenerKind.MEMODB, ListenerKind.HTTP)
            return Finding(kind, "speaks ZMTP") if is_wrong else None
    elif data.startswith(b"\0SP\0\0\x31"):
        kind = ListenerKind.MEMODB
    elif data.startswith(b"\x15\x03") or (data.startswith(b"HTTP/") and data.endswith(SPEAKS_TLS)):  # an alert of TLS
        return Finding(ListenerKind.TLS, "speaks TLS")
    elif data.startswith(b"HTTP/") and data.endswith(ALIVE):
        kind = ListenerKind.HTTP
    elif data.startswith(b"HTTP/") and data[8:10] == b" 5":
        return None  # may come from a proxy whose broker is down
    if kind is None:
        known = next((predicate for banner, predicate in _BANNERS if data.startswith(banner)), None)
        return Finding(ListenerKind.UNKNOWN, known or f"speaks an unknown protocol (first bytes: {data[:8].hex(' ')})")
    return None if kind is expected else Finding(kind, _PREDICATES[kind])


async def _probe_zmtp(target: Target, probes: Probes) -> ListenerKind:
    """Raises OSError."""
    loop = asyncio.get_running_loop()
    connection = await connect(loop, target.place, SILENCE_LIMIT)
    try:
        peer = _ZmtpPeer(loop, connection, target.proof)
        await peer.greet()
        if not peer.is_ours:
            return ListenerKind.ZMTP
        for group in probes:
            answer = await peer.send_probes(group)
            if answer is not None:
                return _kind_of_reply(answer)
        return ListenerKind.PLAIN_CALLERS
    finally:
        connection.close()


class _ZmtpPeer:
    """A short ZMTP connection for probes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: socket.socket, proof: Proof) -> None:
        self._loop = loop
        self._socket = connection
        self._carrier = dialling_zmtp("DEALER", proof, DEFAULT_LIMITS)
        self._first_bytes = b""
        self._messages: list[Message] = []

    @property
    def is_ours(self) -> bool:
        """Return whether this is a listener socket of a Dragoman broker."""
        carrier = self._carrier
        return carrier.ready and carrier.peer_socket_type == "ROUTER" and self._first_bytes in OUR_GREETINGS

    async def greet(self) -> None:
        """Complete the handshake. Raises TimeoutError if a broker is too slow to be identified."""
        until = self._loop.time() + RESPONSE_TIMEOUT
        while not self._carrier.ready and await self._receive(until):
            pass
        if not self._carrier.ready and self._carrier.failure is None and self._first_bytes in OUR_GREETINGS:
            raise TimeoutError

    async def send_probes(self, probes: Sequence[Sequence[Frame]]) -> Message | None:
        """Send probes and return the first reply, or None if there is none."""
        self._carrier.outgoing += [b"".join(self._carrier.encode(probe)) for probe in probes]
        until = self._loop.time() + PROBE_TIMEOUT
        while not self._messages and await self._receive(until):
            pass
        return self._messages[0] if self._messages else None

    async def _receive(self, until: float) -> bool:
        """Receive once. Returns whether valid ZMTP arrived in time."""
        outgoing, self._carrier.outgoing = self._carrier.outgoing, []
        await self._loop.sock_sendall(self._socket, b"".join(outgoing))
        data = await _read(self._socket, max(0.001, until - self._loop.time()))
        if not data:
            return False
        self._first_bytes = (self._first_bytes + data)[:GREETING_BYTES]
        self._messages += [each for each in self._carrier.feed(data) if isinstance(each, list)]
        return self._carrier.failure is None


def _probes(expected: ListenerKind, thorough: bool) -> Probes:
    """Return groups of probes; each group is sent if the one before got no reply. As far as possible, a broker of the
    expected kind receives no probe that it does not know."""
    if expected is ListenerKind.PLAIN_CALLERS and not thorough:
        return ((LOOK_UP,),)
    if expected is ListenerKind.MAJORDOMO:
        return ((LOOK_UP,), (PING,))
    if expected in (ListenerKind.PINGPONG_WORKERS, ListenerKind.POWERHOSE_WORKERS):
        return ((PING,), (LOOK_UP,))
    return ((PING, LOOK_UP),)


def _kind_of_reply(message: Message) -> ListenerKind:
    frames = [bytes(frame) for frame in message]
    if frames[:2] == [b"", b"PONG"]:
        return ListenerKind.PINGPONG_WORKERS
    if frames == [b"", b"ERROR"]:
        return ListenerKind.POWERHOSE_WORKERS
    if frames[:2] == [b"", b"MDPC01"]:
        return ListenerKind.MAJORDOMO
    if frames[0][:1] in NATIVE_TYPES:
        return ListenerKind.NATIVE
    return ListenerKind.ZMTP


async def _read(connection: socket.socket, timeout: float) -> bytes | None:
    """Return the next bytes, b"" at the end of the stream, or None after the time-out. Raises OSError."""
    try:
        async with asyncio.timeout(timeout):
            return await asyncio.get_running_loop().sock_recv(connection, READ_BYTES)
    except TimeoutError:
        return None
