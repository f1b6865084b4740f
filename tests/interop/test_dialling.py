"""Outgoing connections: REQ and DEALER against libzmq's REP and ROUTER, and every way in which a dial can fail."""

from __future__ import annotations

import os
import socket
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import pytest
import zmq
from broker_setup import MIB, Asker, Echo, Setup, Visitors, open_descriptors, port_of

from case_tables import check_every_row
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_commands import OUR_GREETING
from dragoman.sdk.address import SocketAddress, TcpAddress, UnixAddress
from dragoman.server.connection_limits import ConnectionLimits
from dragoman.server.dial_policy import SELF_DIALLED
from dragoman.streams.dial import BackOff
from owners import LOCAL_OWNER
from programs import until

QUESTIONS = [b"", b"x", b"s" * 255, b"l" * 256, bytes(MIB)]


def req() -> Zmtp:
    return Zmtp("REQ", dials=True)


@pytest.mark.parametrize("theirs", [zmq.REP, zmq.ROUTER], ids=["REP", "ROUTER"])
def test_our_req_asks_a_libzmq_rep_or_router(
    setup: Setup, visitors: Visitors, place: SocketAddress, theirs: int
) -> None:
    replier, where = received(visitors, theirs, place)
    responder = Asker(setup.runner)
    peer = setup.dial(responder, where, req())
    until(lambda: responder.present == [peer], "it has greeted")
    assert peer.socket_name == "dialled"
    for question in QUESTIONS:
        setup.send(peer, [b"", question])
        asked = replier.recv_multipart()
        assert asked[-1] == question
        replier.send_multipart([*asked[:-1], question[::-1], b"and more"])
        assert responder.next() == [b"", question[::-1], b"and more"]


@pytest.mark.parametrize("theirs", [zmq.REP, zmq.ROUTER], ids=["REP", "ROUTER"])
def test_our_dealer_talks_to_a_libzmq_rep_or_router(
    setup: Setup, visitors: Visitors, place: SocketAddress, theirs: int
) -> None:
    other, where = received(visitors, theirs, place)
    responder = Asker(setup.runner)
    peer = setup.dial(responder, where, Zmtp("DEALER", b"me", dials=True))
    until(lambda: responder.present, "it has greeted")
    envelope = [b"me", b""] if theirs == zmq.ROUTER else []
    message = [bytes((number,)) * number for number in range(1, 40)]
    setup.run(lambda: [setup.runner.connections.send(peer, [b"", b"%d" % turn, *message]) for turn in range(20)])
    for turn in range(20):
        assert other.recv_multipart() == [*envelope, b"%d" % turn, *message]
        other.send_multipart([*envelope, b"%d" % turn])
    assert [responder.next() for _ in range(20)] == [[b"", b"%d" % turn] for turn in range(20)]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_dialling_knows_both_families_of_tcp_and_tunes_the_connection(
    setup: Setup, visitors: Visitors, host: str
) -> None:
    family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
    listens_on = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    replier, where = received(visitors, zmq.REP, TcpAddress(listens_on, 0))
    responder = Asker(setup.runner)
    peer = setup.dial(responder, TcpAddress(host, where.port), req())  # type: ignore[union-attr]
    until(lambda: responder.present, "it has greeted")
    setup.send(peer, [b"", b"hello"])
    assert replier.recv() == b"hello"
    assert peer.stream._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)  # type: ignore[union-attr]


def test_a_dial_that_is_refused_is_a_loss_and_leaves_nothing_behind(setup: Setup, place: SocketAddress) -> None:
    if isinstance(place, TcpAddress):
        with socket.create_server(("127.0.0.1", 0)) as gone:
            place = TcpAddress("127.0.0.1", gone.getsockname()[1])
    responder = Asker(setup.runner)
    setup.run(lambda: None)
    before = open_descriptors()
    peers = [setup.dial(responder, place, req()) for _ in range(20)]
    until(lambda: len(responder.losses) == 20, "all are lost")
    assert {peer for peer, _ in responder.losses} == set(peers)
    assert responder.present == []
    assert_nothing_left(setup)
    until(lambda: open_descriptors() <= before, "all descriptors are closed")
    assert all("cannot connect to" in peer.closing for peer in peers)  # type: ignore[operator]


def test_the_broker_never_dials_itself_whatever_the_spelling(setup: Setup, free_path: Path) -> None:
    """It did: as its own user, who may do everything, so that a worker submitted jobs through it."""
    echo, responder = Echo(setup.runner), Asker(setup.runner)
    one = setup.open(echo, TcpAddress("127.0.0.1", 0))
    every = setup.open(echo, TcpAddress("0.0.0.0", 0))
    v6 = setup.open(echo, TcpAddress("::1", 0))
    file = setup.open(echo, UnixAddress(str(free_path)))
    assert isinstance(one, TcpAddress)
    assert isinstance(every, TcpAddress)
    assert isinstance(v6, TcpAddress)
    assert isinstance(file, UnixAddress)
    folder = free_path.parent
    (folder / "l").symlink_to(free_path)
    (folder / "h").hardlink_to(free_path)
    (folder / "d").symlink_to(folder)
    paths = [folder / "s", folder / "l", folder / "h", folder / "d" / "l", folder / "d" / ".." / folder.name / "s"]
    paths.append(Path(os.path.relpath(free_path)))
    hosts = ("127.0.0.1", "localhost", "127.1", "0.0.0.0", "::ffff:127.0.0.1", "::ffff:7f00:1")
    places: list[SocketAddress] = [TcpAddress(host, one.port) for host in hosts]
    places += [TcpAddress(host, every.port) for host in (*hosts, "127.0.0.7", socket.gethostbyname("localhost"))]
    places += [TcpAddress(host, v6.port) for host in ("::1", "::", "0:0:0:0:0:0:0:1")]
    places += [UnixAddress(str(path)) for path in paths if len(str(path)) < 108]

    def check(place: SocketAddress) -> None:
        peer = setup.dial(responder, place, req())
        until(lambda: setup.run(lambda: peer.is_lost), "it has ended")
        assert SELF_DIALLED in (peer.closing or "")

    check_every_row(check, [(place,) for place in places])
    assert (echo.present, responder.present) == ([], [])
    assert setup.journal.mentions("dial rejected")


def test_a_dial_that_reaches_this_broker_by_a_way_of_the_kernel_is_rejected_where_it_arrives(setup: Setup) -> None:
    """Rules of a firewall redirect a connection, and the other end then has another address than was dialled."""
    echo, responder = Echo(setup.runner), Asker(setup.runner)
    place = setup.open(echo, TcpAddress("127.0.0.1", 0))
    setup.run(setup.host._own_sockets._listening.clear)  # it does not know this address as its own
    peer = setup.dial(responder, place, req())
    until(lambda: setup.run(lambda: peer.is_lost), "it has ended")
    assert (echo.present, responder.present, setup.counters.connections_rejected) == ([], [], 1)
    assert setup.journal.mentions("this broker dialled itself")


def test_a_dial_to_a_socket_file_that_nobody_serves_is_a_loss(setup: Setup, free_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(free_path))
    responder = Asker(setup.runner)
    setup.dial(responder, UnixAddress(str(free_path)), req())
    until(lambda: responder.losses, "it is lost")
    assert_nothing_left(setup)


def test_a_dial_to_a_name_that_does_not_exist_is_a_loss(setup: Setup) -> None:
    responder = Asker(setup.runner)
    peer = setup.dial(responder, TcpAddress("no.such.host.invalid", 1), req())
    until(lambda: responder.losses, "it is lost")
    assert "cannot resolve" in (peer.closing or "")
    assert_nothing_left(setup)


def test_a_dial_that_nobody_answers_is_a_loss_after_a_while(setup: Setup) -> None:
    """A full queue of connections drops ours without a word, as a firewall would."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        try:
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(full.getsockname())
            responder = Asker(setup.runner)
            setup.dial(responder, TcpAddress(*full.getsockname()), req())
            until(lambda: responder.losses, "it is lost")
            assert_nothing_left(setup)
        finally:
            for each in waiting:
                each.close()


def test_a_place_that_accepts_and_never_greets_is_a_loss(setup: Setup) -> None:
    responder = Asker(setup.runner)
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def dial() -> Any:
            peer = setup.runner.connections.dial(
                responder, TcpAddress(*silent.getsockname()), "dialled", req(), LOCAL_OWNER
            )
            peer.limits = ConnectionLimits(handshake_timeout=0.2)
            return peer

        peer = setup.run(dial)
        until(lambda: responder.losses, "it is lost")
        assert peer.closing == "no handshake within 0.2 s"
        assert setup.counters.bad_messages == {("asker", "handshake timeout"): 1}
        assert_nothing_left(setup)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "an HTTP response"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
        (b"\x00SP\x00\x00\x31\x00\x00", "nanomsg and NNG"),
        (b"\xff\0\0\0\0\0\0\0\x01\x7f\x01", "ZMTP 2"),
    ],
    ids=["http", "ssh", "nng", "zmtp 2"],
)
def test_a_place_that_speaks_something_else_is_a_loss_and_named(setup: Setup, said: bytes, named: str) -> None:
    responder = Asker(setup.runner)
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        setup.dial(responder, TcpAddress(*stranger.getsockname()), req())
        accepted, _ = stranger.accept()
        with accepted:
            accepted.settimeout(15)
            accepted.sendall(said)
            until(lambda: responder.losses, "it is lost")
    assert setup.journal.mentions(named)
    assert setup.journal.mentions("the dialled address")
    assert_nothing_left(setup)


def test_a_libzmq_socket_of_the_wrong_kind_is_a_loss(setup: Setup, visitors: Visitors, place: SocketAddress) -> None:
    _, where = received(visitors, zmq.PULL, place)
    responder = Asker(setup.runner)
    setup.dial(responder, where, req())
    until(lambda: responder.losses, "it is lost")
    assert responder.present == []
    assert_nothing_left(setup)


def test_a_dial_that_is_given_up_before_it_succeeds_is_a_loss_and_hangs_up(setup: Setup) -> None:
    responder = Asker(setup.runner)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def dial_and_think_better() -> None:
            peer = setup.runner.connections.dial(
                responder, TcpAddress(*server.getsockname()), "dialled", req(), LOCAL_OWNER
            )
            setup.runner.connections.close(peer, "changed our mind")

        setup.run(dial_and_think_better)
        until(lambda: responder.losses, "it is lost")
        accepted, _ = server.accept()
        with accepted:
            accepted.settimeout(15)
            assert accepted.recv(100) in (b"", OUR_GREETING)
    assert len(responder.losses) == 1
    assert_nothing_left(setup)


def test_what_is_said_before_a_dialled_peer_has_greeted_is_refused_or_delivered(
    setup: Setup, visitors: Visitors, place: SocketAddress
) -> None:
    """It may not vanish, and it may not stand before our greeting on the wire."""
    replier, where = received(visitors, zmq.REP, place)
    responder = Asker(setup.runner)

    def dial_and_ask() -> str:
        setup.runner.sessions.append(responder)
        peer = setup.runner.connections.dial(responder, where, "dialled", req(), LOCAL_OWNER)
        try:
            setup.runner.connections.send(peer, [b"", b"early"], "mark")
        except AssertionError:
            return "refused"
        return "taken"

    if setup.run(dial_and_ask) == "taken":
        assert replier.recv() == b"early"


def test_a_place_that_dies_is_a_loss_and_tells_what_never_left(
    setup: Setup, visitors: Visitors, place: SocketAddress
) -> None:
    replier, where = received(visitors, zmq.REP, place)
    responder = Asker(setup.runner)
    peer = setup.dial(responder, where, req())
    until(lambda: responder.present, "it has greeted")
    setup.send(peer, [b"", b"question"], "left")
    assert replier.recv() == b"question"
    replier.close(linger=0)
    until(lambda: responder.losses, "it is lost")
    assert responder.losses == [(peer, [])]
    assert_nothing_left(setup)


def test_libzmq_that_comes_late_and_comes_back_is_found_again_by_dialling_on(
    setup: Setup, visitors: Visitors, free_path: Path
) -> None:
    where = UnixAddress(str(free_path))
    faithful = Faithful(setup.runner, where)
    setup.run(setup.runner.sessions.append, faithful)
    setup.run(setup.runner.run_once)
    until(lambda: len(faithful.losses) >= 3, "it has tried in vain")
    for life in range(2):
        replier = visitors.receive(zmq.REP, where)
        until(lambda: faithful.present, "it has found the place")
        setup.send(faithful.present[0], [b"", b"%d" % life])
        assert replier.recv() == b"%d" % life
        losses = len(faithful.losses)
        replier.close(linger=0)
        until(lambda losses=losses: len(faithful.losses) > losses, "it has noticed the end")


class Faithful(Asker):
    """Dials its address again whenever the connection is lost, after the back-off of streams/dial.py."""

    def __init__(self, line: Any, where: SocketAddress) -> None:
        super().__init__(line)
        self._where = where
        self._back_off = BackOff(Random(7).uniform, first=0.01, cap=0.1)
        self._due = 0.0

    def opened(self, peer: Any, now: float) -> None:
        super().opened(peer, now)
        self._back_off.reset()

    def lost(self, peer: Any, unsent: Any, now: float) -> None:
        super().lost(peer, unsent, now)
        self._due = now + self._back_off.next()

    def tick(self, now: float) -> float:
        if now >= self._due:
            self._due = inf
            self.runner.connections.dial(self, self._where, "dialled", req(), LOCAL_OWNER)
        return self._due


def test_back_off_doubles_from_a_tenth_of_a_second_to_thirty_and_is_spread_by_half() -> None:
    """The longest is 30 s with the spread: workers that were said to wait 5 s at most waited up to 7.5 s."""
    lowest, highest = BackOff(lambda low, _: low), BackOff(lambda _, high: high)
    plain = [0.1 * 2**tries for tries in range(8)] + [20.0] * 5_000
    assert [lowest.next() for _ in plain] == pytest.approx([delay * 0.5 for delay in plain])
    assert [highest.next() for _ in plain] == pytest.approx([delay * 1.5 for delay in plain])


def test_back_off_spreads_a_crowd_and_begins_anew_after_success() -> None:
    crowd = [BackOff(Random(seed).uniform) for seed in range(100)]
    first = [each.next() for each in crowd]
    assert all(0.05 <= delay <= 0.15 for delay in first)
    assert len(set(first)) == 100
    later = [[each.next() for _ in range(20)][-1] for each in crowd]
    assert all(10.0 <= delay <= 30.0 for delay in later)
    for each in crowd:
        each.reset()
    assert all(0.05 <= each.next() <= 0.15 for each in crowd)


def received(visitors: Visitors, kind: int, place: SocketAddress) -> tuple[zmq.Socket, SocketAddress]:
    """Return a listening libzmq socket, and its address."""
    receiver = visitors.receive(kind, place)
    return receiver, TcpAddress(place.host, port_of(receiver)) if isinstance(place, TcpAddress) else place


def assert_nothing_left(setup: Setup) -> None:
    until(lambda: not setup.runner.connections.peers and not setup.host._dials, "peers and dials are forgotten")
    assert not setup.runner.connections.registry.admission.addresses
    assert setup.runner.connections.registry.heartbeats.watched == 0
