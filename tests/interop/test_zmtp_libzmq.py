"""ZMTP, tested against libzmq: every socket type in use, on TCP and ipc, on both event loops."""

from __future__ import annotations

import pytest
import zmq
from broker_setup import MIB, Asker, Echo, Setup, Visitors

from dragoman.carriers import zmtp
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_commands import answer_to
from dragoman.sdk.address import SocketAddress, TcpAddress
from programs import until

SHAPES: dict[str, list[bytes]] = {
    "no bytes": [b""],
    "one byte": [b"x"],
    "255 bytes": [b"s" * 255],
    "256 bytes": [b"l" * 256],
    "1 MiB": [bytes(range(256)) * 4096],
    "40 frames": [bytes((number,)) * (number * 7) for number in range(40)],
    "40 frames with large ones": [bytes((number,)) * (70_000 if number % 13 == 5 else number) for number in range(40)],
    "empty frames": [b"", b"", b""],
}


@pytest.mark.parametrize("ours", ["ROUTER", "REP"])
def test_a_dealer_gets_every_shape_of_message_back(
    setup: Setup, visitors: Visitors, place: SocketAddress, ours: str
) -> None:
    dealer = visitors.visit(zmq.DEALER, setup.open(Echo(setup.runner), place, ours))
    for shape in SHAPES.values():
        dealer.send_multipart(shape)
    assert [dealer.recv_multipart() for _ in SHAPES] == list(SHAPES.values())


@pytest.mark.parametrize("ours", ["ROUTER", "REP"])
def test_a_req_gets_every_shape_of_message_back(
    setup: Setup, visitors: Visitors, place: SocketAddress, ours: str
) -> None:
    responder = visitors.visit(zmq.REQ, setup.open(Echo(setup.runner), place, ours))
    for shape in SHAPES.values():
        responder.send_multipart(shape)
        assert responder.recv_multipart() == shape


@pytest.mark.parametrize("ours", ["ROUTER", "DEALER"])
def test_a_router_gets_every_shape_of_message_back(
    setup: Setup, visitors: Visitors, place: SocketAddress, ours: str
) -> None:
    """It addresses us by the identity we announce, so it must wait until we have greeted."""
    echo = Echo(setup.runner)
    router = visitors.visit(zmq.ROUTER, setup.open(echo, place, ours), router_mandatory=1)
    for shape in SHAPES.values():
        until(lambda shape=shape: sends(router, [b"setup", *shape]), "the router knows us")
    assert [router.recv_multipart() for _ in SHAPES] == [[b"setup", *shape] for shape in SHAPES.values()]


@pytest.mark.parametrize("ours", ["DEALER", "REQ"])
def test_a_rep_that_connects_to_us_answers_every_shape_of_question(
    setup: Setup, visitors: Visitors, place: SocketAddress, ours: str
) -> None:
    responder = Asker(setup.runner)
    replier = visitors.visit(zmq.REP, setup.open(responder, place, ours))
    until(lambda: responder.present, "the REP has greeted")
    for shape in SHAPES.values():
        setup.send(responder.present[0], [b"", *shape])
        assert replier.recv_multipart() == shape
        replier.send_multipart(shape)
        assert responder.next() == [b"", *shape]


def test_a_router_that_connects_to_our_req_gets_every_shape_of_question(
    setup: Setup, visitors: Visitors, place: SocketAddress
) -> None:
    echo = Echo(setup.runner)
    router = visitors.visit(zmq.ROUTER, setup.open(echo, place, "REQ"))
    until(lambda: echo.present, "the ROUTER has greeted")
    for shape in SHAPES.values():
        setup.send(echo.present[0], [b"", *shape])
        assert router.recv_multipart() == [b"setup", b"", *shape]


def test_the_routing_id_of_a_peer_is_its_identity(setup: Setup, visitors: Visitors, place: SocketAddress) -> None:
    echo = Echo(setup.runner)
    where = setup.open(echo, place)
    named = bytes(range(1, 256))  # the longest that is allowed
    visitors.visit(zmq.DEALER, where, routing_id=named)
    visitors.visit(zmq.REQ, where)
    until(lambda: len(echo.present) == 2, "both have greeted")
    assert sorted(peer.identity for peer in echo.present) == [b"", named]


def test_messages_of_a_connection_keep_their_order(setup: Setup, visitors: Visitors, place: SocketAddress) -> None:
    dealer = visitors.visit(zmq.DEALER, setup.open(Echo(setup.runner), place))
    sizes = [number * 37 % 70_000 for number in range(2_000)]
    for number, size in enumerate(sizes):
        dealer.send_multipart([b"%d" % number, bytes(size)])
    for number, size in enumerate(sizes):
        assert dealer.recv_multipart() == [b"%d" % number, bytes(size)]


def test_the_heartbeats_of_libzmq_are_answered_in_the_middle_of_large_messages(
    setup: Setup, visitors: Visitors, place: SocketAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    pings: list[bytes] = []

    def answer(body: bytes) -> bytes | None:
        pings.extend([body] if body.startswith(b"\x04PING") else [])
        return answer_to(body)

    monkeypatch.setattr(zmtp, "answer_to", answer)
    echo = Echo(setup.runner)
    where = setup.open(echo, place)
    dealer = visitors.visit(
        zmq.DEALER, where, heartbeat_ivl=10, heartbeat_timeout=10_000, heartbeat_ttl=10_000, sndbuf=65_536
    )
    until(lambda: echo.present, "it has greeted")
    large = [b"a", bytes(MIB), b"b", bytes(2 * MIB), b"c"]

    def exchange() -> bool:
        dealer.send_multipart(large)
        assert dealer.recv_multipart() == large
        return len(pings) >= 20

    until(exchange, "20 heartbeats")
    assert echo.losses == []


def test_libzmq_drops_us_when_we_do_not_answer_its_heartbeats(
    setup: Setup, visitors: Visitors, place: SocketAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the test above: heartbeats are on, and it does matter that they are answered."""
    monkeypatch.setattr(zmtp, "answer_to", lambda body: None)
    echo = Echo(setup.runner)
    where = setup.open(echo, place)
    visitors.visit(zmq.DEALER, where, heartbeat_ivl=20, heartbeat_timeout=100)
    until(lambda: echo.losses, "it gives us up")


def test_libzmq_comes_back_when_we_hang_up(setup: Setup, visitors: Visitors, place: SocketAddress) -> None:
    echo = Echo(setup.runner)
    dealer = visitors.visit(zmq.DEALER, setup.open(echo, place), routing_id=b"again")
    for times in range(1, 4):
        peer = until(lambda: echo.present and echo.present[0], "it is here")
        dealer.send(b"%d" % times)
        assert dealer.recv() == b"%d" % times
        setup.run(setup.runner.connections.close, peer, "the test wants it")
        until(lambda times=times: len(echo.losses) == times, "the session has heard that it is lost")


def test_libzmq_comes_back_when_the_whole_broker_was_gone(
    loop_name: str, visitors: Visitors, place: SocketAddress
) -> None:
    former = Setup(loop_name)
    try:
        where = former.open(Echo(former.runner), place)
        dealer = visitors.visit(zmq.DEALER, where)
        dealer.send(b"before")
        assert dealer.recv() == b"before"
    finally:
        former.close()
    setup = Setup(loop_name)
    try:
        echo = Echo(setup.runner)
        setup.open(echo, where)
        until(lambda: echo.present, "it has come back")
        dealer.send(b"after")
        assert dealer.recv() == b"after"
    finally:
        setup.close()


def test_two_hundred_peers_at_once_each_get_their_own_messages(
    setup: Setup, visitors: Visitors, place: SocketAddress
) -> None:
    where = setup.open(Echo(setup.runner), place)
    dealers = [visitors.visit(zmq.DEALER, where) for _ in range(200)]
    for round_ in range(5):
        for number, dealer in enumerate(dealers):
            dealer.send_multipart([b"%d" % number, b"%d" % round_, bytes(1_000)])
    for round_ in range(5):
        for number, dealer in enumerate(dealers):
            assert dealer.recv_multipart() == [b"%d" % number, b"%d" % round_, bytes(1_000)]
    assert len(setup.runner.connections.peers) == 200


@pytest.mark.parametrize("family", ["127.0.0.1", "::1", "localhost"])
def test_tcp_listens_on_both_families(setup: Setup, visitors: Visitors, family: str) -> None:
    where = setup.open(Echo(setup.runner), TcpAddress(family, 0))
    responder = visitors.visit(zmq.REQ, where)
    responder.send(b"hello")
    assert responder.recv() == b"hello"
    (peer,) = setup.runner.connections.peers
    assert peer.label.startswith("[::1]:" if peer.address == "::1" else "127.0.0.1:")


STRANGERS = {"PUSH": zmq.PUSH, "SUB": zmq.SUB, "REP": zmq.REP, "PAIR": zmq.PAIR}


@pytest.mark.parametrize("stranger", STRANGERS)
def test_a_libzmq_socket_that_does_not_fit_is_refused_by_name(
    setup: Setup, visitors: Visitors, place: SocketAddress, stranger: str
) -> None:
    echo = Echo(setup.runner)
    where = setup.open(echo, place)
    visitor = visitors.visit(STRANGERS[stranger], where)
    until(lambda: setup.counters.bad_messages.get(("echo", "socket type")), "it is counted")
    until(lambda: setup.journal.mentions(f"{stranger} came to a ROUTER"), "a log line names what came")
    visitor.close()
    assert_served(visitors, where)
    assert [each.carrier.peer_socket_type for each in echo.present] == ["REQ"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "CURVE"])
def test_a_libzmq_peer_that_wants_another_mechanism_gives_up_and_leaves_nothing_behind(
    setup: Setup, visitors: Visitors, place: SocketAddress, mechanism: str
) -> None:
    """libzmq 4.3.5 reads our greeting first, sees NULL, and hangs up before it has said what it wants itself."""
    if mechanism == "CURVE" and not zmq.has("curve"):
        pytest.skip("this libzmq has no CURVE")
    echo = Echo(setup.runner)
    carriers: list[Zmtp] = []

    def carrier() -> Zmtp:
        carriers.append(Zmtp("ROUTER"))
        return carriers[-1]

    where = setup.open(echo, place, carrier=carrier)
    public, secret = zmq.curve_keypair()
    job_options = {
        "PLAIN": {"plain_username": b"me", "plain_password": b"secret"},
        "CURVE": {"curve_serverkey": public, "curve_publickey": public, "curve_secretkey": secret},
    }
    visitors.visit(zmq.DEALER, where, **job_options[mechanism])
    until(lambda: carriers and not setup.runner.connections.peers, "it has come and gone")
    assert not carriers[0].ready
    assert_served(visitors, where)
    assert echo.losses == []


def assert_served(visitors: Visitors, where: SocketAddress) -> None:
    responder = visitors.visit(zmq.REQ, where)
    responder.send(b"others")
    assert responder.recv() == b"others"


def sends(router: zmq.Socket, frames: list[bytes]) -> bool:
    """Return whether a ROUTER with the option ROUTER_MANDATORY could send."""
    try:
        router.send_multipart(frames)
    except zmq.ZMQError as error:
        if error.errno != zmq.EHOSTUNREACH:
            raise
        return False
    return True
