"""TLS between the sockets and the carriers of a broker: start, end, counts, and other protocols at its port."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from broker_setup import MIB, Asker, Echo, Setup, ready_command

from authority import Authority
from case_tables import check_every_row
from dragoman.carriers.carrier import Carrier, Frame, Messages
from dragoman.carriers.zmtp import Zmtp, encode
from dragoman.carriers.zmtp_commands import OUR_GREETING
from dragoman.carriers.zmtp_limits import ZmtpLimits
from dragoman.sdk.address import SocketAddress, TcpAddress, TlsAddress
from dragoman.sdk.outgoing import open_connection
from dragoman.server.connection_limits import ConnectionLimits
from dragoman.streams.certificates import read_pem
from dragoman.streams.tls_context import ListenerTls, TlsFiles
from dragoman.streams.tls_problems import ALERT_OF_WRONG_PROTOCOL
from programs import PATIENCE, until

LOOPBACK = TcpAddress("127.0.0.1", 0)


class ReadyCarrier(Carrier):
    """A carrier without a handshake: each read is a message."""

    def __init__(self) -> None:
        self.gap = None
        self.rest = b""
        self.outgoing = []
        self.ready = True
        self.failure = None
        self.peer_identity = b""

    def feed(self, data: bytes) -> Messages:
        return [[data]]

    def encode(self, frames: Sequence[Frame]) -> list[Frame]:
        return list(frames)

    def ping(self) -> bytes | None:
        return None

    def release(self) -> None:
        pass

    @property
    def holding(self) -> int:
        return 0


class Certified:
    """Files of a listener and of its clients."""

    def __init__(self, authority: Authority) -> None:
        self.ca = str(authority.cert)
        self.server = authority.issue()
        self.client = authority.issue("client", "extendedKeyUsage=clientAuth")
        self.files = TlsFiles(str(self.server.cert), str(self.server.key), client_ca=self.ca)

    def context(self, *, is_known: bool = True) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        if is_known:
            context.load_cert_chain(self.client.cert, self.client.key)
        return context

    @contextmanager
    def visit(self, where: SocketAddress, *, is_known: bool = True, receive_buffer: int = 0) -> Iterator[ssl.SSLSocket]:
        """Connect with TLS, by Python's own sockets."""
        assert isinstance(where, TcpAddress)
        with socket.socket() as plain:
            plain.settimeout(PATIENCE)
            if receive_buffer:
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            plain.connect((where.host, where.port))
            with self.context(is_known=is_known).wrap_socket(plain, server_hostname="localhost") as visitor:
                yield visitor


@pytest.fixture(scope="module")
def certified(authority: Authority) -> Certified:
    return Certified(authority)


def take(visitor: ssl.SSLSocket, count: int) -> bytes:
    taken = b""
    while len(taken) < count:
        piece = visitor.recv(count - len(taken))
        assert piece, f"the connection ended after {len(taken)} bytes of {count}"
        taken += piece
    return taken


def greet(visitor: ssl.SSLSocket) -> None:
    visitor.sendall(OUR_GREETING + ready_command(b"DEALER"))
    take(visitor, len(OUR_GREETING) + len(ready_command(b"ROUTER", b"setup")))


# ---------------------------------------------------------------- start


def test_tls_peer_is_not_open_before_its_handshake(setup: Setup, certified: Certified) -> None:
    """R137: also if its carrier has no handshake, which without TLS is open as soon as it is accepted."""
    echo = Echo(setup.runner)
    where = setup.open(echo, LOOPBACK, carrier=ReadyCarrier, tls=ListenerTls(certified.files))
    assert isinstance(where, TcpAddress)
    with socket.create_connection((where.host, where.port), PATIENCE) as plain:
        until(lambda: setup.run(lambda: len(setup.runner.connections.peers)) == 1, "it is accepted")
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = certified.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                assert setup.run(lambda: list(echo.present)) == []
                plain.sendall(outgoing.read())
                incoming.write(plain.recv(1 << 16))
        assert setup.run(lambda: list(echo.present)) == []  # TLS 1.3: the client is done first
        plain.sendall(outgoing.read())
        until(lambda: setup.run(lambda: len(echo.present)) == 1, "both handshakes are done")


def test_the_certificate_of_the_peer_is_known_when_it_opens(setup: Setup, certified: Certified) -> None:
    shown: list[bytes | None] = []

    class Noting(Echo):
        def opened(self, peer: object, now: float) -> None:
            super().opened(peer, now)
            shown.append(self.present[-1].stream.peer_certificate)  # type: ignore[union-attr]

    where = setup.open(Noting(setup.runner), LOOPBACK, tls=ListenerTls(certified.files))
    with certified.visit(where) as visitor:
        greet(visitor)
        assert shown == read_pem(certified.client.cert.read_text())


def test_a_peer_that_never_finishes_its_handshake_is_closed(setup: Setup, certified: Certified) -> None:
    limits = ConnectionLimits(handshake_timeout=0.2)
    where = setup.open(Echo(setup.runner), LOOPBACK, limits=limits, tls=ListenerTls(certified.files))
    assert isinstance(where, TcpAddress)
    with socket.create_connection((where.host, where.port), PATIENCE) as plain:
        assert plain.recv(1) == b""
    assert setup.journal.mentions("no handshake within 0.2 s")


def test_a_replaced_certificate_is_used_by_the_next_connection(
    setup: Setup, authority: Authority, certified: Certified, tmp_path: Path
) -> None:
    """R139"""
    cert, key = tmp_path / "cert", tmp_path / "key"

    def write(number: int) -> bytes:
        issued = authority.issue(f"number {number}")
        cert.write_bytes(issued.cert.read_bytes())
        key.write_bytes(issued.key.read_bytes())
        key.chmod(0o600)
        return read_pem(cert.read_text())[0]

    first = write(1)
    tls = ListenerTls(TlsFiles(str(cert), str(key)))
    where = setup.open(Echo(setup.runner), LOOPBACK, tls=tls)
    with certified.visit(where) as early:
        greet(early)
        assert early.getpeercert(True) == first
        second = write(2)
        setup.run(tls.reload)
        with certified.visit(where) as late:
            assert late.getpeercert(True) == second
        early.sendall(b"".join(encode([b"still here"])))
        assert take(early, 12).endswith(b"still here")


# ---------------------------------------------------------------- messages and counts


def test_messages_of_all_sizes_pass_both_ways(setup: Setup, certified: Certified) -> None:
    where = setup.open(Echo(setup.runner), LOOPBACK, tls=ListenerTls(certified.files))
    assert isinstance(where, TcpAddress)
    client = certified.client
    files = TlsFiles(str(client.cert), str(client.key), ca=certified.ca)
    place = TlsAddress("localhost", where.port, files)
    bodies = [b"", b"x", bytes(16_384), bytes(16_385), bytes(range(256)) * 4096, bytes(7 * MIB)]

    async def converse() -> list[bytes]:
        came: asyncio.Queue[bytes] = asyncio.Queue()
        carrier = Zmtp("DEALER", dials=True, limits=ZmtpLimits(max_payload=8 * MIB))
        link = await open_connection(place, carrier, lambda each: came.put_nowait(bytes(each[0])), print, PATIENCE)  # type: ignore[index]
        for body in bodies:
            link.send([body])
        try:
            async with asyncio.timeout(PATIENCE):
                return [await came.get() for _ in bodies]
        finally:
            link.close()

    assert asyncio.run(converse()) == bodies
    peers = setup.runner.connections
    until(lambda: not setup.run(lambda: list(peers.peers)), "its end has been seen")
    ((received, sent),) = peers.registry.traffic.values()
    assert received > sum(map(len, bodies)) < sent, "the traffic is of encrypted bytes"


def test_tags_of_messages_that_never_left_come_back_through_tls(setup: Setup, certified: Certified) -> None:
    responder = Asker(setup.runner)
    where = setup.open(responder, LOOPBACK, tls=ListenerTls(certified.files))
    size = 65_536 + 9
    with certified.visit(where, receive_buffer=4_096) as visitor:
        greet(visitor)
        peer = responder.present[0]
        assert peer.stream is not None
        begin = setup.run(lambda: peer.stream.sent)  # type: ignore[union-attr]
        setup.run(lambda: [setup.runner.connections.send(peer, [bytes(65_536)], number) for number in range(200)])
        until(lambda: peer.stream.backlog and peer.stream.sent >= begin + size, "it has fallen behind")  # type: ignore[union-attr]
    until(lambda: responder.losses, "it is lost")
    ((_, unsent),) = responder.losses
    taken = (peer.stream.sent - begin) // size
    assert unsent == list(range(taken, 200))
    assert 0 < taken < 200


def test_a_message_written_to_a_peer_that_has_closed_comes_back(setup: Setup, certified: Certified) -> None:
    """R138: the bytes leave the broker and are answered with a reset. The lost records are counted in plain bytes."""
    responder = Asker(setup.runner)
    where = setup.open(responder, LOOPBACK, tls=ListenerTls(certified.files))
    with certified.visit(where) as visitor:
        greet(visitor)
        until(lambda: responder.present, "it has greeted")

        def close_then_write() -> None:
            visitor.close()
            setup.runner.connections.send(responder.present[0], [b"a word"], "a job")
            setup.runner.run_once()

        setup.run(close_then_write)
        until(lambda: responder.losses, "it is lost")
    assert responder.losses[0][1] == ["a job"]


def test_a_message_that_the_peer_has_read_does_not_come_back(setup: Setup, certified: Certified) -> None:
    """R9: also if the connection ends with a reset."""
    responder = Asker(setup.runner)
    where = setup.open(responder, LOOPBACK, tls=ListenerTls(certified.files))
    with certified.visit(where) as visitor:
        greet(visitor)
        until(lambda: responder.present, "it has greeted")
        setup.send(responder.present[0], [b"a job"], "a job")
        assert take(visitor, 7).endswith(b"a job")
        visitor.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        visitor.close()
        until(lambda: responder.losses, "it is lost")
    assert responder.losses[0][1] == []


# ---------------------------------------------------------------- end


@pytest.mark.parametrize("says_goodbye", [True, False], ids=["close_notify", "none"])
def test_an_end_with_or_without_close_notify_is_in_order(
    setup: Setup, certified: Certified, says_goodbye: bool
) -> None:
    echo = Echo(setup.runner)
    where = setup.open(echo, LOOPBACK, tls=ListenerTls(certified.files))
    with certified.visit(where) as visitor:
        greet(visitor)
        visitor.sendall(b"".join(encode([b"hello"])))
        assert take(visitor, 7).endswith(b"hello")
        if says_goodbye:
            visitor.unwrap()  # waits for the broker's close_notify, too
        else:
            visitor.shutdown(socket.SHUT_WR)
        until(lambda: echo.losses, "its end has been seen")
    assert echo.losses[0][0].closed_in_order


def test_the_broker_sends_close_notify_after_its_last_message(setup: Setup, certified: Certified) -> None:
    echo = Echo(setup.runner)
    where = setup.open(echo, LOOPBACK, tls=ListenerTls(certified.files))
    with certified.visit(where) as visitor:
        visitor.suppress_ragged_eofs = False  # an end without close_notify raises
        greet(visitor)

        def farewell() -> None:
            setup.runner.connections.send(echo.present[0], [b"farewell"])
            setup.runner.connections.close(echo.present[0], "over")

        setup.run(farewell)
        assert take(visitor, 10).endswith(b"farewell")
        assert visitor.recv(1) == b""


# ---------------------------------------------------------------- other protocols


def test_a_peer_without_tls_is_named_and_gets_an_alert(setup: Setup, certified: Certified) -> None:
    where = setup.open(Echo(setup.runner), LOOPBACK, tls=ListenerTls(certified.files))
    assert isinstance(where, TcpAddress)
    rows = (
        (OUR_GREETING, "the peer speaks ZMTP without TLS"),
        (b"\0SP\0\0\x30\0\0", "the peer speaks SP, the protocol of nanomsg and NNG, without TLS"),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", "the peer speaks HTTP without TLS"),
        (b"SSH-2.0-x\r\n", "the peer speaks SSH without TLS"),
        (b"hello, world\r\n", "the peer speaks a protocol without TLS"),
    )

    def check(data: bytes, problem: str) -> None:
        with socket.create_connection((where.host, where.port), PATIENCE) as plain:
            plain.sendall(data)
            came = b""
            while piece := plain.recv(100):
                came += piece
        assert came == ALERT_OF_WRONG_PROTOCOL
        until(lambda: setup.journal.mentions(problem), problem)

    check_every_row(check, rows)


def test_a_refused_client_is_named(setup: Setup, authority: Authority, certified: Certified, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "stranger").issue("stranger")
    expired = authority.issue("late", days=-1)
    where = setup.open(Echo(setup.runner), LOOPBACK, tls=ListenerTls(certified.files))
    with certified.visit(where, is_known=False) as visitor, pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
        visitor.recv(1)
    missing = "the client has shown no certificate, and client_ca= requires one"
    until(lambda: setup.journal.mentions(missing), missing)
    for issued, problem in ((stranger, "has an unknown issuer"), (expired, "has expired")):
        context = certified.context(is_known=False)
        context.load_cert_chain(issued.cert, issued.key)
        with (
            socket.create_connection((where.host, where.port), PATIENCE) as plain,  # type: ignore[union-attr]
            context.wrap_socket(plain, server_hostname="localhost") as visitor,
            pytest.raises(ssl.SSLError, match="ALERT"),
        ):
            visitor.recv(1)
        sentence = f"the certificate of the client {problem}"
        until(partial(setup.journal.mentions, sentence), sentence)


def test_a_pinned_certificate_needs_no_authority(setup: Setup, certified: Certified, tmp_path: Path) -> None:
    """A leaf of any authority is accepted as itself; another leaf of the same authority is not."""
    foreign = Authority(tmp_path / "foreign")
    pinned, other = foreign.issue("pinned"), foreign.issue("other")
    files = TlsFiles(str(certified.server.cert), str(certified.server.key))
    echo = Echo(setup.runner)
    where = setup.open(echo, LOOPBACK, tls=ListenerTls(files, read_pem(pinned.cert.read_text())))
    context = certified.context(is_known=False)
    context.load_cert_chain(pinned.cert, pinned.key)
    with (
        socket.create_connection((where.host, where.port), PATIENCE) as plain,  # type: ignore[union-attr]
        context.wrap_socket(plain, server_hostname="localhost") as visitor,
    ):
        greet(visitor)
    context = certified.context(is_known=False)
    context.load_cert_chain(other.cert, other.key)
    with (
        socket.create_connection((where.host, where.port), PATIENCE) as plain,  # type: ignore[union-attr]
        context.wrap_socket(plain, server_hostname="localhost") as visitor,
        pytest.raises(ssl.SSLError, match="UNKNOWN_CA"),
    ):
        visitor.recv(1)
