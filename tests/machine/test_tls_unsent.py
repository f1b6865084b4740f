"""`sent` through TLS: messages of any sizes, and a kernel that takes any number of bytes at a time.

The socket is a double, so that each cut is chosen. The other side is an SSLObject that has received exactly the bytes
that the kernel has taken: the stream must know to the byte what that side can have read.
"""

from __future__ import annotations

import asyncio
import ssl
from itertools import chain, cycle
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from authority import Authority
from dragoman.carriers.carrier import Messages, Reader
from dragoman.carriers.zmtp import Zmtp
from dragoman.dialects.interface import BrokerSide
from dragoman.server.connection import StreamConnection
from dragoman.streams import tls
from dragoman.streams.tls import RECORD_BYTES, TlsStream
from dragoman.streams.tls_context import ListenerTls, TlsFiles, TlsRole, client_role
from fuzz.cut_socket import CutSocket, StillLoop
from owners import LOCAL_OWNER

SIZES = st.one_of(
    st.integers(1, 300), st.integers(RECORD_BYTES - 2, RECORD_BYTES + 2), st.integers(1, 5 * RECORD_BYTES)
)
CUTS = st.one_of(st.integers(0, 40), st.integers(0, 2 * RECORD_BYTES), st.just(1 << 20))


class Roles:
    """A listener and a client that trusts it."""

    def __init__(self, server: TlsRole, client: TlsRole) -> None:
        self.server = server
        self.client = client


@pytest.fixture(scope="module", params=["dragoman/1", ""], ids=["1.3", "1.2"])
def roles(request: pytest.FixtureRequest, authority: Authority) -> Roles:
    issued = authority.issue()
    files = TlsFiles(str(issued.cert), str(issued.key), ca=str(authority.cert), protocol=request.param)
    client = client_role(files, "localhost")
    if not request.param:
        client.context.maximum_version = ssl.TLSVersion.TLSv1_2
    return Roles(ListenerTls(files).role, client)


class Bytes(Reader):
    """A carrier that keeps all bytes, and offers a place for the next ones."""

    def __init__(self, gap_bytes: int = 0) -> None:
        self.came = bytearray()
        self._room = bytearray(gap_bytes)
        self.gap = memoryview(self._room) if gap_bytes else None

    def feed(self, data: bytes) -> Messages:
        self.came += data
        return []

    def fill(self, count: int) -> Messages:
        self.came += self._room[:count]
        return []


class World:
    """A stream of a listener with a connection, and a client."""

    def __init__(self, roles: Roles, gap_bytes: int = 0) -> None:
        self.socket = CutSocket()
        self.loop = StillLoop()
        self.carrier = Bytes(gap_bytes)
        self.problems: list[str] = []
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        self.stream = TlsStream(loop, cast(Any, self.socket), self.carrier, roles.server)
        self.stream.start(lambda _: None, self.problems.append)
        self.connection = StreamConnection(BrokerSide(), "listener", Zmtp("ROUTER"), "", "", 0.0, LOCAL_OWNER)
        self.connection.stream = self.stream
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        role = roles.client
        self.client = role.context.wrap_bio(self._incoming, self._outgoing, server_hostname=role.server_name)
        self._fed = 0
        self.read = bytearray()

    def greet(self) -> None:
        for _ in range(4):
            try:
                self.client.do_handshake()
            except ssl.SSLWantReadError:
                pass
            self.deliver()
        assert self.stream.is_ready

    def deliver(self) -> None:
        """Move bytes: from the client to the stream, and from the kernel to the client."""
        self.socket.arriving += self._outgoing.read()
        while self.socket.arriving and self.loop.readable is not None:
            self.loop.readable()
        self._incoming.write(bytes(self.socket.taken[self._fed :]))
        self._fed = len(self.socket.taken)

    def read_all(self) -> int:
        """Read all that the client can see. Returns the number of bytes since the beginning."""
        self.deliver()
        try:
            while True:
                self.read += self.client.read(1 << 20)
        except ssl.SSLWantReadError:
            return len(self.read)

    def let(self, count: int) -> None:
        """Let the kernel take this many bytes."""
        self.socket.room = count
        if self.loop.writable is not None and count:
            self.loop.writable()

    def send(self, *messages: bytes) -> None:
        out = self.connection.out
        for message in messages:
            half = len(message) // 2
            out += [message[:half], message[half:]] if half else [message]
            self.connection.fresh_tags.append((len(out), message))
        self.connection.write(self.stream)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_unsent_is_exact_through_tls(roles: Roles, data: st.DataObject) -> None:
    """D8: exactly the messages whose last byte the other side cannot see come back, in order."""
    world = World(roles)
    world.greet()
    world.socket.room = data.draw(CUTS)
    messages: list[bytes] = []
    for _ in range(data.draw(st.integers(1, 4))):
        sizes = data.draw(st.lists(SIZES, min_size=1, max_size=8))
        fresh = [bytes([(len(messages) + index) % 256]) * size for index, size in enumerate(sizes)]
        messages += fresh
        world.send(*fresh)
        for cut in data.draw(st.lists(CUTS, max_size=6)):
            world.let(cut)
            assert world.stream.sent == world.read_all()
            assert world.stream.sent + world.stream.backlog == sum(map(len, messages))
            assert world.stream.wire_sent == len(world.socket.taken)
    seen = world.read_all()
    assert b"".join(messages).startswith(world.read)
    ends = [sum(map(len, messages[: index + 1])) for index in range(len(messages))]
    assert world.connection.take_unsent() == [each for each, end in zip(messages, ends, strict=True) if end > seen]


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(SIZES, min_size=1, max_size=8), gap_bytes=st.sampled_from([0, 1, 1000, 100_000]))
def test_received_bytes_are_the_sent_ones(roles: Roles, sizes: list[int], gap_bytes: int) -> None:
    """Also if the carrier offers the place for a large frame, into which records are decrypted directly."""
    world = World(roles, gap_bytes)
    world.greet()
    sent = b""
    for index, size in enumerate(sizes):
        piece = bytes([index]) * size
        at = 0
        while at < size:
            at += world.client.write(piece[at:])
        sent += piece
        world.deliver()
    assert world.carrier.came == sent
    assert world.stream.received == len(sent)


def test_at_most_128_kib_are_encrypted_ahead(roles: Roles) -> None:
    world = World(roles)
    world.greet()
    world.socket.room = 0
    world.send(bytes(10 << 20))
    assert world.stream.backlog == 10 << 20
    assert tls.AHEAD <= world.stream._socket.backlog < tls.AHEAD + 2 * RECORD_BYTES
    for cut in chain([1], cycle([50_000])):
        world.let(cut)
        assert world.stream._socket.backlog < tls.AHEAD + 2 * RECORD_BYTES
        assert world.stream.sent == world.read_all()
        if not world.stream.backlog:
            break
    assert len(world.read) == 10 << 20


def test_bytes_written_before_the_handshake_wait_for_it(roles: Roles) -> None:
    world = World(roles)
    world.send(b"greeting")
    assert not world.stream.is_ready
    assert (world.stream.sent, world.stream.backlog, bytes(world.socket.taken)) == (0, 8, b"")
    world.greet()
    assert world.read_all() == 8
    assert (world.stream.sent, world.stream.backlog, world.connection.take_unsent()) == (8, 0, [])
