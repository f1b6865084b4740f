"""Finds out what a port speaks when it does not speak the dialect of the address.

The first bytes tell the carriers apart: ZMTP and SP greet every peer that connects, an HTTP server answers a request,
and other servers have banners. All dialects on ZMTP look alike up to there, so a broker of Dragoman's is asked two
questions that are no job in any dialect, and recognised by its answers. ZeroMQ sockets of others, which are recognised
by their greeting, are asked nothing: nobody knows what such a question would do there.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from dragoman.carriers.carrier import Frame, Message
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_commands import OUR_GREETING
from dragoman.dialects.catalogue import Dialect
from dragoman.sdk.address import SocketAddress, UnixAddress
from dragoman.sdk.errors import WrongDialect
from dragoman.sdk.outgoing import OutgoingConnection, Ungreeted
from dragoman.sdk.targets import Target
from dragoman.streams.dial import connect

FIRST_SIGN = 1.0  # seconds that a port may take before we look what it is
BANNER = 0.3  # seconds that a greeting or a banner may take
ANSWER = 0.9  # seconds that an answer may take, where there was none
REPLY = 0.8  # seconds that a broker may take to answer a question
READ_BYTES = 4096

REQUEST = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
ALIVE = b"\r\n\r\nalive\n"
# A PING of PingPong with a count, and a question about a service of Majordomo's broker. Neither is a job anywhere.
PING: tuple[bytes, ...] = (b"", b"PING", b"0")
LOOK_UP: tuple[bytes, ...] = (b"", b"MDPC01", b"mmi.service", b"mmi.service")
Questions = Sequence[Sequence[Sequence[Frame]]]
NATIVE_WORDS = (b"\x02", b"\x03")  # WELCOME and ERROR


class Kind(Enum):
    """Kinds of listeners at a port."""

    NATIVE = "native"
    PINGPONG_WORKERS = "pingpong workers"
    POWERHOSE_WORKERS = "powerhose workers"
    PLAIN_CALLERS = "plain callers"  # of PingPong and of Powerhose: they are the same
    MAJORDOMO = "majordomo"
    MEMODB = "memodb"
    HTTP = "http"
    ZMTP = "zmtp"  # somebody else's socket
    STRANGER = "stranger"


@dataclass(frozen=True, slots=True)
class Finding:
    kind: Kind
    words: str  # completes *it …*


# The port that each dialect needs, by the part that connects.
EXPECTED = {
    ("pingpong", "client"): Kind.PLAIN_CALLERS,
    ("powerhose", "client"): Kind.PLAIN_CALLERS,
    ("pingpong", "worker"): Kind.PINGPONG_WORKERS,
    ("powerhose", "worker"): Kind.POWERHOSE_WORKERS,
    **{
        (each.value, role): each
        for each in (Kind.NATIVE, Kind.MAJORDOMO, Kind.MEMODB, Kind.HTTP)
        for role in ("client", "worker")
    },
}
_WORDS = {
    Kind.NATIVE: "speaks the native dialect over ZMTP (a ROUTER socket)",
    Kind.PINGPONG_WORKERS: "speaks PingPong over ZMTP (a ROUTER socket, for workers)",
    Kind.POWERHOSE_WORKERS: "speaks Powerhose over ZMTP (a ROUTER socket, for workers)",
    Kind.PLAIN_CALLERS: "speaks PingPong or Powerhose over ZMTP (a ROUTER socket, for callers)",
    Kind.MAJORDOMO: "speaks Majordomo over ZMTP (a ROUTER socket)",
    Kind.MEMODB: "speaks MemoDB over SP (a REP socket)",
    Kind.HTTP: "speaks HTTP",
}
_SILENT = Finding(Kind.STRANGER, "accepts connections and says nothing")
_BANNERS = (
    (b"HTTP/", "speaks HTTP, but is no broker"),
    (b"SSH-", "speaks SSH"),
    (b"-ERR", "speaks the protocol of Redis"),
    (b"220 ", "speaks SMTP or FTP"),
    (b"\x15\x03", "speaks TLS"),
)


# Answers of a port for workers to a peer of another kind. A caller takes them for a result, a worker for a job.
SUSPICIOUS = (b"PONG", b"ERROR")


class Recognition:
    """Whether an address is known to be right, and what is there if nothing shows it. For all connections of a client
    or a worker: once something was understood, nothing is looked at any more."""

    def __init__(self, target: Target, role: str) -> None:
        self._target = target
        self._role = role
        self.is_known = False

    @property
    def _is_proven_by_greeting(self) -> bool:
        return EXPECTED[self._target.dialect.name, self._role] in (Kind.MEMODB, Kind.HTTP)

    async def problem(self, *, thorough: bool = False) -> WrongDialect | None:
        """The error that names what is there, or None if it may be the right port."""
        if self.is_known:
            return None
        sentence = await wrong_port(self._target.dialect, self._role, self._target.place, thorough)
        return None if sentence is None or self.is_known else WrongDialect(sentence)

    async def open(self, opening: Coroutine[Any, Any, OutgoingConnection]) -> OutgoingConnection:
        """The link. If the port lets us wait, or does not greet as it should, we look what it is. Raises
        BrokerUnavailable, and WrongDialect, which is one."""
        if self.is_known:
            return await opening
        task = asyncio.ensure_future(opening)
        try:
            await asyncio.wait({task}, timeout=FIRST_SIGN)
            if not task.done():
                problem = await self.problem()
                if problem is not None and not task.done():
                    raise problem
            link = await task
            self.is_known = self._is_proven_by_greeting
            return link
        except Ungreeted:
            problem = await self.problem(thorough=True)
            if problem is not None:
                raise problem from None
            raise
        finally:
            if not task.done():
                task.cancel()
            elif not task.cancelled():
                task.exception()  # it may be that nobody asks for it


async def wrong_port(dialect: Dialect, role: str, place: SocketAddress, thorough: bool) -> str | None:
    """The sentence about a port that cannot be used, or None if it may be the right one. `role`: client or worker.
    `thorough`: something came that the right port does not say, so that its broker need not be spared."""
    finding = await _look(place, EXPECTED[dialect.name, role], thorough)
    if finding is None or (thorough and finding is _SILENT):  # what was said before tells more
        return None
    scheme = "ipc" if isinstance(place, UnixAddress) else "tcp"
    own = "the native dialect" if dialect.name == "native" else dialect.title
    other = "" if finding.kind is Kind.STRANGER or own in finding.words else f", not {own}"
    return f"{scheme}://{place} {finding.words}{other}; {_advice(finding.kind, role, scheme, place)}"


def _advice(kind: Kind, role: str, scheme: str, place: SocketAddress) -> str:
    if kind is Kind.STRANGER:
        return "check host and port of the broker"
    if kind is Kind.ZMTP:
        return f"name the dialect of the broker in the address, such as pingpong+{scheme}://{place}"
    if kind is Kind.PLAIN_CALLERS and role == "worker":
        return "workers connect to the backend, which has a port of its own"
    if kind in (Kind.PINGPONG_WORKERS, Kind.POWERHOSE_WORKERS) and role == "client":
        return "callers connect to the frontend, which has a port of its own"
    name = "pingpong" if kind is Kind.PLAIN_CALLERS else kind.value.partition(" ")[0]
    native = "" if name == "native" else f"{name}+"
    return f"use http://{place}" if name == "http" and scheme == "tcp" else f"use {native}{scheme}://{place}"


async def _look(place: SocketAddress, expected: Kind, thorough: bool) -> Finding | None:
    loop = asyncio.get_running_loop()
    try:
        connected = await connect(loop, place, FIRST_SIGN)
    except OSError:
        return None
    try:
        came = await _read(connected, BANNER)
        if came is None:
            await loop.sock_sendall(connected, REQUEST)
            came = await _read(connected, ANSWER)
            while came is not None and came.startswith(b"HTTP/") and ALIVE not in came and len(came) < READ_BYTES:
                more = await _read(connected, BANNER)
                if not more:
                    break
                came += more
        return await _judge(place, came, expected, thorough)
    except OSError:
        return None
    finally:
        connected.close()


async def _judge(place: SocketAddress, came: bytes | None, expected: Kind, thorough: bool) -> Finding | None:
    """The finding, unless it is the expected one. A server that hangs up at once may be one that has no room."""
    if came is None:
        return _SILENT
    if not came:
        return None
    kind: Kind | None = None
    if came.startswith(b"\xff"):
        kind = await _ask_zmtp(place, _questions(expected, thorough))
        if kind is Kind.ZMTP:
            is_wrong = expected in (Kind.NATIVE, Kind.MEMODB, Kind.HTTP)
            return Finding(kind, "speaks ZMTP") if is_wrong else None
    elif came.startswith(b"\0SP\0\0\x31"):
        kind = Kind.MEMODB
    elif came.startswith(b"HTTP/") and came.endswith(ALIVE):
        kind = Kind.HTTP
    elif came.startswith(b"HTTP/") and came[8:10] == b" 5":
        return None  # of a proxy before a broker that is not there now, perhaps
    if kind is None:
        known = next((words for banner, words in _BANNERS if came.startswith(banner)), None)
        return Finding(Kind.STRANGER, known or f"speaks nothing that is known here (it began with {came[:8].hex(' ')})")
    return None if kind is expected else Finding(kind, _WORDS[kind])


async def _ask_zmtp(place: SocketAddress, questions: Questions) -> Kind:
    """Raises OSError."""
    loop = asyncio.get_running_loop()
    connected = await connect(loop, place, FIRST_SIGN)
    try:
        peer = _ZmtpPeer(loop, connected)
        await peer.greet()
        if not peer.is_ours:
            return Kind.ZMTP
        for together in questions:
            answer = await peer.ask(together)
            if answer is not None:
                return _answered(answer)
        return Kind.PLAIN_CALLERS
    finally:
        connected.close()


class _ZmtpPeer:
    """A connection on which a few messages are exchanged."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connected: socket.socket) -> None:
        self._loop = loop
        self._socket = connected
        self._carrier = Zmtp("DEALER", dials=True)
        self._began = b""
        self._heard: list[Message] = []

    @property
    def is_ours(self) -> bool:
        """Whether this is a socket of Dragoman's that brokers listen with."""
        carrier = self._carrier
        return carrier.ready and carrier.peer_socket_type == "ROUTER" and self._began == OUR_GREETING

    async def greet(self) -> None:
        until = self._loop.time() + ANSWER
        while not self._carrier.ready and await self._receive(until):
            pass

    async def ask(self, questions: Sequence[Sequence[Frame]]) -> Message | None:
        """The first answer, or None if none comes."""
        self._carrier.outgoing += [b"".join(self._carrier.encode(question)) for question in questions]
        until = self._loop.time() + REPLY
        while not self._heard and await self._receive(until):
            pass
        return self._heard[0] if self._heard else None

    async def _receive(self, until: float) -> bool:
        """Whether something came in time, and was ZMTP."""
        outgoing, self._carrier.outgoing = self._carrier.outgoing, []
        await self._loop.sock_sendall(self._socket, b"".join(outgoing))
        came = await _read(self._socket, max(0.001, until - self._loop.time()))
        if not came:
            return False
        self._began = (self._began + came)[: len(OUR_GREETING)]
        self._heard += [each for each in self._carrier.feed(came) if isinstance(each, list)]
        return self._carrier.failure is None


def _questions(expected: Kind, thorough: bool) -> Questions:
    """Questions that are asked together, and those that follow if there was no answer. A broker of the expected kind
    hears none that it does not know, as far as that is possible."""
    if expected is Kind.PLAIN_CALLERS and not thorough:
        return ((LOOK_UP,),)
    if expected is Kind.MAJORDOMO:
        return ((LOOK_UP,), (PING,))
    if expected in (Kind.PINGPONG_WORKERS, Kind.POWERHOSE_WORKERS):
        return ((PING,), (LOOK_UP,))
    return ((PING, LOOK_UP),)


def _answered(message: Message) -> Kind:
    frames = [bytes(frame) for frame in message]
    if frames[:2] == [b"", b"PONG"]:
        return Kind.PINGPONG_WORKERS
    if frames == [b"", b"ERROR"]:
        return Kind.POWERHOSE_WORKERS
    if frames[:2] == [b"", b"MDPC01"]:
        return Kind.MAJORDOMO
    if frames[0][:1] in NATIVE_WORDS:
        return Kind.NATIVE
    return Kind.ZMTP


async def _read(connected: socket.socket, timeout: float) -> bytes | None:
    """The bytes that come next: none if that is the end, None if nothing comes. Raises OSError."""
    try:
        async with asyncio.timeout(timeout):
            return await asyncio.get_running_loop().sock_recv(connected, READ_BYTES)
    except TimeoutError:
        return None
