"""CURVE and PLAIN, tested against libzmq: both roles, every socket type in use, two versions of libzmq."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import zmq
from broker_setup import MIB, Asker, Echo, Setup, Visitors, port_of
from system_libzmq import SystemVisitors, load, version
from zmq.utils.monitor import recv_monitor_message

from dragoman.carriers import zmtp_curve
from dragoman.carriers.curve_keys import key_z85, new_key_pair
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_commands import answer_to
from dragoman.carriers.zmtp_curve import zmtp_carrier
from dragoman.carriers.zmtp_curve_handshake import CurveClient, CurveServer
from dragoman.carriers.zmtp_handshake import NULL, Security
from dragoman.carriers.zmtp_limits import ZmtpLimits
from dragoman.carriers.zmtp_plain import PlainClient, PlainServer
from dragoman.sdk.address import SocketAddress, TcpAddress
from dragoman.server.connection_limits import ConnectionLimits
from programs import PATIENCE, until

HERE = TcpAddress("127.0.0.1", 0)
SERVER, CLIENT, OTHER = (new_key_pair(bytes([number]) * 32) for number in (1, 2, 3))
SHAPES: dict[str, list[bytes]] = {
    "no bytes": [b""],
    "one byte": [b"x"],
    "222 bytes": [b"s" * 222],
    "223 bytes": [b"l" * 223],
    "empty frames": [b"", b"", b""],
    "40 frames with large ones": [bytes((number,)) * (70_000 if number % 13 == 5 else number) for number in range(40)],
    "3 and 5 MB": [b"id", b"", bytes(range(250)) * 12_000, b"", bytes(range(250)) * 20_000],
}
ANY = Visitors | SystemVisitors
NAME, PASSWORD = b"token", b"dgm_secret"


# ---- the same set-up for both mechanisms and both libraries


def ours(mechanism: str, is_server: bool) -> Security:
    if mechanism == "NULL":
        return NULL
    if mechanism == "PLAIN":
        return PlainServer(accepts) if is_server else PlainClient(NAME, PASSWORD)
    if is_server:
        return CurveServer((SERVER,), lambda key: key == CLIENT[0], os.urandom)
    return CurveClient(CLIENT, SERVER[0], os.urandom)


def accepts(name: bytes, password: bytes) -> bool:
    return (name, password) == (NAME, PASSWORD)


def theirs(mechanism: str, is_server: bool) -> dict[str, Any]:
    if mechanism == "NULL":
        return {}
    if mechanism == "PLAIN":
        return {"plain_server": 1} if is_server else {"plain_username": NAME, "plain_password": PASSWORD}
    if is_server:
        return {"curve_server": 1, "curve_secretkey": key_z85(SERVER[1]).encode()}
    return curve_options()


def curve_options(server_key: bytes = SERVER[0], pair: tuple[bytes, bytes] = CLIENT) -> dict[str, bytes]:
    return {
        "curve_serverkey": key_z85(server_key).encode(),
        "curve_publickey": key_z85(pair[0]).encode(),
        "curve_secretkey": key_z85(pair[1]).encode(),
    }


def listener(socket_type: str, security: Security) -> Callable[[], Zmtp]:
    limits = ZmtpLimits(max_payload=8 * MIB)
    return lambda: zmtp_carrier(socket_type, b"setup", limits=limits, security=security)


def dialler(socket_type: str, mechanism: str) -> Zmtp:
    limits = ZmtpLimits(max_payload=8 * MIB)
    return zmtp_carrier(socket_type, b"setup", dials=True, limits=limits, security=ours(mechanism, False))


@pytest.fixture(params=["PLAIN", "CURVE"])
def mechanism(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["pyzmq", "system"])
def anyone(request: pytest.FixtureRequest) -> Iterator[ANY]:
    """Sockets of libzmq, of either version."""
    made: ANY = Visitors() if request.param == "pyzmq" else SystemVisitors()
    yield made
    made.close()


@pytest.fixture
def authenticator(anyone: ANY, mechanism: str) -> Iterator[None]:
    """Accepts every password, as libzmq requires of a PLAIN server (ZAP, RFC 27)."""
    if mechanism != "PLAIN":
        yield
        return
    make = anyone._make if isinstance(anyone, Visitors) else anyone.make
    handler = make(zmq.REP, {})
    handler.set(zmq.RCVTIMEO, 50)
    handler.bind("inproc://zeromq.zap.01")
    is_over = threading.Event()

    def answer() -> None:
        while not is_over.is_set():
            try:
                request = handler.recv_multipart()
            except zmq.ZMQError:
                continue
            assert request[6:] == [NAME, PASSWORD]
            handler.send_multipart([b"1.0", request[1], b"200", b"OK", b"", b""])

    thread = threading.Thread(target=answer, name="zap")
    thread.start()
    yield
    is_over.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_the_two_libraries_differ() -> None:
    """Else the tests would run twice with the same one."""
    assert version(load()) != zmq.zmq_version_info()
    assert zmq.has("curve")


# ---- libzmq connects


@pytest.mark.parametrize("socket_type", ["ROUTER", "REP"])
def test_libzmq_dealer_to_us(setup: Setup, anyone: ANY, mechanism: str, socket_type: str) -> None:
    echo = Echo(setup.runner)
    where = setup.open(echo, HERE, carrier=listener(socket_type, ours(mechanism, True)))
    dealer = anyone.visit(zmq.DEALER, where, routing_id=b"worker", **theirs(mechanism, False))
    for shape in SHAPES.values():
        dealer.send_multipart(shape)
    assert [dealer.recv_multipart() for _ in SHAPES] == list(SHAPES.values())
    (peer,) = echo.present
    key, token = (CLIENT[0], b"") if mechanism == "CURVE" else (b"", PASSWORD)
    assert (peer.carrier.peer_key, peer.carrier.peer_token, peer.identity) == (key, token, b"worker")


@pytest.mark.parametrize("socket_type", ["ROUTER", "REP"])
def test_libzmq_req_to_us(setup: Setup, anyone: ANY, mechanism: str, socket_type: str) -> None:
    where = setup.open(Echo(setup.runner), HERE, carrier=listener(socket_type, ours(mechanism, True)))
    requester = anyone.visit(zmq.REQ, where, **theirs(mechanism, False))
    for shape in SHAPES.values():
        requester.send_multipart(shape)
        assert requester.recv_multipart() == shape


@pytest.mark.parametrize("socket_type", ["ROUTER", "DEALER", "REQ"])
def test_libzmq_router_to_us(setup: Setup, anyone: ANY, mechanism: str, socket_type: str) -> None:
    asker = Asker(setup.runner)
    where = setup.open(asker, HERE, carrier=listener(socket_type, ours(mechanism, True)))
    router = anyone.visit(zmq.ROUTER, where, **theirs(mechanism, False))
    exchange_with_router(setup, asker, router)


@pytest.mark.parametrize("socket_type", ["DEALER", "REQ"])
def test_libzmq_rep_to_us(setup: Setup, anyone: ANY, mechanism: str, socket_type: str) -> None:
    asker = Asker(setup.runner)
    where = setup.open(asker, HERE, carrier=listener(socket_type, ours(mechanism, True)))
    exchange_with_rep(setup, asker, anyone.visit(zmq.REP, where, **theirs(mechanism, False)))


def exchange_with_router(setup: Setup, asker: Asker, router: Any) -> None:
    """The ROUTER learns our identity in the handshake, and can answer when the first message has come."""
    peer = until(lambda: asker.present and asker.present[0], "the handshake is done")
    for shape in SHAPES.values():
        setup.send(peer, [b"", *shape])
        assert router.recv_multipart() == [b"setup", b"", *shape]
        router.send_multipart([b"setup", b"", *shape])
        assert asker.next() == [b"", *shape]


def exchange_with_rep(setup: Setup, asker: Asker, replier: Any) -> None:
    peer = until(lambda: asker.present and asker.present[0], "the handshake is done")
    for shape in SHAPES.values():
        setup.send(peer, [b"", *shape])
        assert replier.recv_multipart() == shape
        replier.send_multipart(shape)
        assert asker.next() == [b"", *shape]


# ---- libzmq listens


def place(receiver: Any) -> SocketAddress:
    return TcpAddress("127.0.0.1", port_of(receiver))


@pytest.mark.usefixtures("authenticator")
@pytest.mark.parametrize("socket_type", ["DEALER", "REQ", "ROUTER"])
def test_us_to_libzmq_router(setup: Setup, anyone: ANY, mechanism: str, socket_type: str) -> None:
    router = anyone.receive(zmq.ROUTER, HERE, **theirs(mechanism, True))
    asker = Asker(setup.runner)
    setup.dial(asker, place(router), dialler(socket_type, mechanism))
    exchange_with_router(setup, asker, router)
    key = SERVER[0] if mechanism == "CURVE" else b""
    assert asker.present[0].carrier.peer_key == key


@pytest.mark.usefixtures("authenticator")
@pytest.mark.parametrize("socket_type", ["DEALER", "REQ"])
def test_us_to_libzmq_rep(setup: Setup, anyone: ANY, mechanism: str, socket_type: str) -> None:
    replier = anyone.receive(zmq.REP, HERE, **theirs(mechanism, True))
    asker = Asker(setup.runner)
    setup.dial(asker, place(replier), dialler(socket_type, mechanism))
    exchange_with_rep(setup, asker, replier)


@pytest.mark.usefixtures("authenticator")
@pytest.mark.parametrize("socket_type", ["ROUTER", "REP"])
def test_us_to_libzmq_dealer(setup: Setup, anyone: ANY, mechanism: str, socket_type: str) -> None:
    dealer = anyone.receive(zmq.DEALER, HERE, **theirs(mechanism, True))
    setup.dial(Echo(setup.runner), place(dealer), dialler(socket_type, mechanism))
    for shape in SHAPES.values():
        dealer.send_multipart(shape)
    assert [dealer.recv_multipart() for _ in SHAPES] == list(SHAPES.values())


# ---- heartbeats


def count_commands(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return a list that gets the name of each command that comes in a box."""
    names: list[bytes] = []

    def answer(body: bytes) -> bytes | None:
        names.append(body[1:5])
        return answer_to(body)

    monkeypatch.setattr(zmtp_curve, "answer_to", answer)
    return names


def test_curve_with_heartbeats_of_libzmq(setup: Setup, anyone: ANY, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are answered in the middle of large messages, in boxes whose counters rise."""
    names = count_commands(monkeypatch)
    echo = Echo(setup.runner)
    where = setup.open(echo, HERE, carrier=listener("ROUTER", ours("CURVE", True)))
    beats = {"heartbeat_ivl": 10, "heartbeat_timeout": 10_000, "heartbeat_ttl": 10_000, "sndbuf": 65_536}
    dealer = anyone.visit(zmq.DEALER, where, **beats, **curve_options())
    large = [b"a", bytes(MIB), b"b", bytes(2 * MIB), b"c"]

    def exchange() -> bool:
        dealer.send_multipart(large)
        assert dealer.recv_multipart() == large
        return names.count(b"PING") >= 20

    until(exchange, "20 heartbeats", 4 * PATIENCE)
    assert echo.losses == []


def test_libzmq_drops_us_when_we_do_not_answer_its_heartbeats(
    setup: Setup, anyone: ANY, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the test above."""
    monkeypatch.setattr(zmtp_curve, "answer_to", lambda body: None)
    echo = Echo(setup.runner)
    where = setup.open(echo, HERE, carrier=listener("ROUTER", ours("CURVE", True)))
    anyone.visit(zmq.DEALER, where, heartbeat_ivl=20, heartbeat_timeout=100, **curve_options())
    until(lambda: echo.losses, "it gives us up")


def test_curve_with_our_heartbeats(setup: Setup, anyone: ANY, monkeypatch: pytest.MonkeyPatch) -> None:
    names = count_commands(monkeypatch)
    echo = Echo(setup.runner)
    limits = ConnectionLimits(carrier_ping=0.02, carrier_timeout=PATIENCE)
    where = setup.open(echo, HERE, limits=limits, carrier=listener("ROUTER", ours("CURVE", True)))
    dealer = anyone.visit(zmq.DEALER, where, **curve_options())
    until(lambda: names.count(b"PONG") >= 5, "it answers")
    dealer.send_multipart([b"still here"])
    assert dealer.recv_multipart() == [b"still here"]
    assert echo.losses == []


# ---- refusals


def test_curve_refused_gets_400_and_stays_away(setup: Setup, visitors: Visitors) -> None:
    """A neighbour that was closed without ERROR reconnects six times; meanwhile the refused one never does."""
    refused: list[bytes] = []

    def allow(key: bytes) -> bool:
        refused.append(key)
        return False

    security = CurveServer((SERVER,), allow, os.urandom)
    where = setup.open(Echo(setup.runner), HERE, carrier=listener("ROUTER", security))
    stranger = visitors._make(zmq.DEALER, curve_options())
    monitor = stranger.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
    monitor.rcvtimeo = int(PATIENCE * 1000)
    try:
        stranger.connect(f"tcp://{where}")
        assert recv_monitor_message(monitor)["value"] == 400
        until(lambda: setup.journal.mentions(CLIENT[0].hex()), "the log says which key")
        visitors.visit(zmq.DEALER, where, **curve_options(server_key=OTHER[0]))
        until(lambda: setup.counters.bad_messages.get(("echo", "wrong server key"), 0) >= 6, "the neighbour reconnects")
        assert refused == [CLIENT[0]]
    finally:
        stranger.disable_monitor()
        monitor.close(linger=0)


def test_plain_refused_gets_400(setup: Setup, visitors: Visitors) -> None:
    """The password does not get into the log."""
    calls: list[bytes] = []

    def check(name: bytes, password: bytes) -> bool:
        calls.append(password)
        return password == PASSWORD

    where = setup.open(Echo(setup.runner), HERE, carrier=listener("ROUTER", PlainServer(check)))
    visitors.visit(zmq.DEALER, where, plain_username=NAME, plain_password=b"no-such-password")
    until(lambda: setup.counters.bad_messages.get(("echo", "unknown password"), 0), "it is refused")
    dealer = visitors.visit(zmq.DEALER, where, **theirs("PLAIN", False))
    dealer.send_multipart([b"others"])
    assert dealer.recv_multipart() == [b"others"]
    assert calls == [b"no-such-password", PASSWORD]
    assert not setup.journal.mentions("no-such-password")


def test_curve_temporary_refusal_comes_again(setup: Setup, anyone: ANY) -> None:
    """A broker that is full or starting closes the connection without ERROR."""

    class Full(Echo):
        turned_away = 0

        def opened(self, peer: Any, now: float) -> None:
            super().opened(peer, now)
            if self.turned_away < 3:
                self.turned_away += 1
                self.runner.connections.close(peer, "full")

    full = Full(setup.runner)
    where = setup.open(full, HERE, carrier=listener("ROUTER", ours("CURVE", True)))
    dealer = anyone.visit(zmq.DEALER, where, **curve_options())
    until(lambda: full.turned_away == 3 and len(full.losses) == 3 and full.present, "it comes a fourth time")
    dealer.send_multipart([b"in at last"])
    assert dealer.recv_multipart() == [b"in at last"]


def test_a_client_gets_in_once_the_listener_has_the_key_that_it_knows(setup: Setup, anyone: ANY) -> None:
    """A HELLO for another key is not answered with an ERROR, so libzmq tries again; an older key is served, too."""
    keys = [(OTHER,)]

    def carrier() -> Zmtp:
        return zmtp_carrier("ROUTER", security=CurveServer(keys[-1], lambda key: True, os.urandom))

    where = setup.open(Echo(setup.runner), HERE, carrier=carrier)
    dealer = anyone.visit(zmq.DEALER, where, **curve_options())
    until(lambda: setup.counters.bad_messages.get(("echo", "wrong server key"), 0) >= 2, "it tries again")
    assert setup.journal.mentions(f"give the peer the server key {OTHER[0].hex()}")
    keys.append((OTHER, SERVER))
    dealer.send_multipart([b"in at last"])
    assert dealer.recv_multipart() == [b"in at last"]


@pytest.mark.parametrize("remote", ["NULL", "PLAIN"])
def test_a_libzmq_peer_with_a_weaker_mechanism_leaves_nothing_behind(setup: Setup, anyone: ANY, remote: str) -> None:
    made: list[Zmtp] = []
    make = listener("ROUTER", ours("CURVE", True))

    def carrier() -> Zmtp:
        made.append(make())
        return made[-1]

    where = setup.open(Echo(setup.runner), HERE, carrier=carrier)
    anyone.visit(zmq.DEALER, where, **theirs(remote, False))
    until(lambda: made and not setup.runner.connections.peers, "it has come and gone")
    assert not made[0].ready
    dealer = anyone.visit(zmq.DEALER, where, **curve_options())
    dealer.send_multipart([b"others"])
    assert dealer.recv_multipart() == [b"others"]


def test_our_client_is_refused_by_libzmq_with_a_reason(setup: Setup, visitors: Visitors) -> None:
    """libzmq's ZAP handler refuses the key: ERROR 400."""
    handler = visitors._make(zmq.REP, {})
    handler.bind("inproc://zeromq.zap.01")
    router = visitors.receive(zmq.ROUTER, HERE, zap_domain=b"test", **theirs("CURVE", True))
    carrier = dialler("DEALER", "CURVE")
    setup.dial(Asker(setup.runner), place(router), carrier)
    request = handler.recv_multipart()
    assert request[5:] == [b"CURVE", CLIENT[0]]
    handler.send_multipart([b"1.0", request[1], b"400", b"no", b"", b""])
    until(lambda: carrier.failure, "it is refused")
    assert carrier.failure is not None
    assert carrier.failure.reason == "rejected"
    assert f"does not accept the public key {CLIENT[0].hex()}" in carrier.failure.detail


def test_our_client_with_a_wrong_server_key_is_hung_up_on_and_knows_the_probable_cause(
    setup: Setup, anyone: ANY
) -> None:
    router = anyone.receive(zmq.ROUTER, HERE, **theirs("CURVE", True))
    asker = Asker(setup.runner)
    carrier = zmtp_carrier("DEALER", dials=True, security=CurveClient(CLIENT, OTHER[0], os.urandom))
    setup.dial(asker, place(router), carrier)
    until(lambda: asker.losses or not setup.runner.connections.peers, "it hangs up")
    assert (carrier.ready, carrier.failure) == (False, None)
    assert f"it probably has another public key than {OTHER[0].hex()}" in carrier.probable_cause()
