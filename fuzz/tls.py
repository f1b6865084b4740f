"""Fuzz target: TLS of one connection, with a genuine peer behind a network that cuts, changes, drops or inserts bytes.

The first byte selects the side, the version of TLS, and whether the handshake is done. Each further byte is a step.
OpenSSL draws random numbers, so the same input has other bytes on the wire each time; the properties hold for all.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, cast

from dragoman.carriers.carrier import Messages, Reader
from dragoman.streams.tls import AHEAD, RECORD_BYTES, TlsStream
from dragoman.streams.tls_context import ListenerTls, TlsFiles, TlsRole, client_role
from fuzz.cut_socket import CutSocket, StillLoop
from fuzz.input import Input

MAX_STEPS: Final = 60
MOST_HELD: Final = 2 * RECORD_BYTES
OLDER: Final = ""  # the application protocol of dialects that allow TLS 1.2, too
NEWER: Final = "dragoman/1"


@cache
def roles(protocol: str) -> tuple[TlsRole, TlsRole]:
    """Return the role of a listener with a new certificate, and of a client that trusts it."""
    with TemporaryDirectory() as folder:
        cert, key = str(Path(folder) / "cert.pem"), str(Path(folder) / "key.pem")
        new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key)
        names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
        subprocess.run(["openssl", "req", "-x509", *new_key, "-out", cert, *names], check=True, capture_output=True)
        files = TlsFiles(cert, key, ca=cert, protocol=protocol)
        client = client_role(files, "localhost")
        if protocol == OLDER:
            client.context.maximum_version = ssl.TLSVersion.TLSv1_2
        return ListenerTls(files).role, client


class Collector(Reader):
    """A carrier that keeps all bytes, and sometimes offers a place for the next ones."""

    def __init__(self) -> None:
        self.came = bytearray()
        self.gap: memoryview | None = None
        self._room = bytearray()

    def offer(self, size: int) -> None:
        self._room = bytearray(size)
        self.gap = memoryview(self._room) if size else None

    def feed(self, data: bytes) -> Messages:
        self.came += data
        return []

    def fill(self, count: int) -> Messages:
        assert count <= len(self._room)
        self.came += self._room[:count]
        return []


class Connection:
    """A stream, its genuine peer, and the network between them."""

    def __init__(self, is_server: bool, protocol: str) -> None:
        server, client = roles(protocol)
        role, peer_role = (server, client) if is_server else (client, server)
        self._wire, self._loop = CutSocket(), StillLoop()
        self.carrier = Collector()
        self.ends: list[str] = []
        loop, connected = cast(asyncio.AbstractEventLoop, self._loop), cast(socket.socket, self._wire)
        self._stream = TlsStream(loop, connected, self.carrier, role)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context, name = peer_role.context, peer_role.server_name
        self._peer = context.wrap_bio(self._incoming, self._outgoing, peer_role.is_server, name)
        self._is_peer_ready = self._is_peer_broken = False
        self._delivered = 0  # bytes of the stream that the peer has
        self.is_changed = False  # the bytes on the way to the stream
        self._on_way = bytearray()
        self.sent = bytearray()  # plain bytes of the peer
        self._written = 0  # plain bytes of the stream
        self._read = bytearray()
        self._stream.start(lambda _: None, self.ends.append)

    def shake_hands(self) -> None:
        for _ in range(4):
            self.let_peer_read()
            self.deliver(1 << 20)
        assert self._stream.is_ready
        assert self._is_peer_ready

    def let_peer_read(self) -> None:
        """Give all bytes of the stream to the peer, and let it react."""
        self._incoming.write(bytes(self._wire.taken[self._delivered :]))
        self._delivered = len(self._wire.taken)
        try:
            if not self._is_peer_ready:
                self._peer.do_handshake()
                self._is_peer_ready = True
            while data := self._peer.read(1 << 16):
                self._read += data
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self._is_peer_broken = True
        self._on_way += self._outgoing.read()

    def let_peer_write(self, data: bytes) -> None:
        if self._is_peer_ready and not self._is_peer_broken:
            self.sent += data[: self._peer.write(data)]
            self._on_way += self._outgoing.read()

    def let_peer_close(self) -> None:
        if self._is_peer_ready and not self._is_peer_broken:
            try:
                self._peer.unwrap()
            except ssl.SSLError:  # the stream's close_notify has not arrived
                pass
            self._is_peer_broken = True  # it writes nothing more
            self._on_way += self._outgoing.read()

    def deliver(self, count: int, size: int = 1 << 16) -> None:
        """Give bytes on the way to the stream, in pieces of a size."""
        arriving = self._on_way[:count]
        del self._on_way[:count]
        while arriving and self._loop.readable is not None:
            self._wire.arriving += arriving[:size]
            del arriving[:size]
            self._loop.readable()

    def change(self, start: int, end: int, data: bytes) -> None:
        """Replace bytes on the way."""
        start, end = min(start, len(self._on_way)), min(end, len(self._on_way))
        if self._on_way[start:end] != data:
            self._on_way[start:end] = data
            self.is_changed = True

    def write(self, size: int) -> None:
        self._stream.write([b"w" * size])
        self._written += size

    def let_kernel_take(self, count: int) -> None:
        self._wire.room = count
        if self._loop.writable is not None and count:
            self._loop.writable()

    def close(self) -> None:
        self._stream.close()
        self._loop.run_timers()

    def check(self) -> None:
        """Check that the stream passes on the bytes that its peer has sent, and nothing else."""
        stream = self._stream
        assert self.sent.startswith(self.carrier.came), "bytes that the peer has not sent"
        assert stream.received == len(self.carrier.came)
        assert len(self.ends) <= 1
        assert not stream.tls_problem or self.ends
        assert stream.sent <= self._written
        assert stream._decryptor._incoming.pending <= MOST_HELD or self.ends
        assert stream._socket.backlog < AHEAD + 2 * RECORD_BYTES
        assert set(self._read) <= set(b"w")

    def check_all_came(self) -> None:
        """Check that bytes that nobody changed arrive whole."""
        if not self.is_changed:
            self.deliver(1 << 30)
            assert self._loop.readable is None or self.carrier.came == self.sent
            assert not self._stream.tls_problem, self._stream.tls_problem


def test_one_input(data: bytes) -> None:
    given = Input(data)
    choice = given.number()
    connection = Connection(not choice & 1, NEWER if choice & 2 else OLDER)
    if choice & 4:
        connection.shake_hands()
    for _ in range(MAX_STEPS):
        if not given:
            break
        take_step(connection, given)
        connection.check()
    connection.check_all_came()
    connection.close()
    connection.check()


def take_step(connection: Connection, given: Input) -> None:
    match given.number() % 10:
        case 0:
            connection.let_peer_read()
        case 1:
            connection.deliver(1 << 20)
        case 2:
            connection.deliver(given.number())
        case 3:
            connection.deliver(1 << 20, 1 + given.number())
        case 4:
            connection.let_peer_write(bytes((given.number(),)) * (1 + given.number() * 100))
        case 5:
            start = given.long_number()
            connection.change(start, start + given.number(), given.piece())
        case 6:
            connection.write(1 + given.number() * 300)
        case 7:
            connection.let_kernel_take(given.number() * 50)
        case 8:
            connection.carrier.offer(given.number() * 20)
        case _:
            connection.let_peer_close()
