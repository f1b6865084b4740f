"""Streams on real sockets: addresses, writes, and remote sides that do not read."""

from __future__ import annotations

import socket
import stat
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import zmq
from broker_setup import MIB, Asker, Echo, Raw, Setup, Visitors, open_descriptors

from dragoman.carriers.carrier import Frame
from dragoman.core.policy import Policy
from dragoman.sdk.address import SocketAddress, TcpAddress, UnixAddress
from dragoman.server.connection_limits import ConnectionLimits
from dragoman.streams import stream as stream_module
from dragoman.streams.sockets import AddressInUse, tune
from dragoman.streams.stream import Stream
from programs import until

LOOPBACK = TcpAddress("127.0.0.1", 0)

# ---------------------------------------------------------------- places


def test_a_port_that_is_taken_is_refused_and_named(setup: Setup) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressInUse, match=rf"127\.0\.0\.1:{port} is taken"):
            setup.open(Echo(setup.runner), TcpAddress("127.0.0.1", port))


def test_a_host_that_is_not_ours_is_an_error_that_names_it(setup: Setup) -> None:
    with pytest.raises(OSError, match=r"cannot listen on 192\.0\.2\.1:7"):
        setup.open(Echo(setup.runner), TcpAddress("192.0.2.1", 7))
    with pytest.raises(OSError, match=r"cannot resolve 'no\.such\.host\.invalid'"):
        setup.open(Echo(setup.runner), TcpAddress("no.such.host.invalid", 7))


def test_a_socket_file_is_for_its_owner_only_and_goes_when_we_do(loop_name: str, free_path: Path) -> None:
    setup = Setup(loop_name)
    try:
        setup.open(Echo(setup.runner), UnixAddress(str(free_path)))
        assert stat.S_IMODE(free_path.stat().st_mode) == 0o600
    finally:
        setup.close()
    assert not free_path.exists()


def test_a_socket_file_whose_owner_died_is_cleaned_away(setup: Setup, visitors: Visitors, free_path: Path) -> None:
    leave_stale_socket(free_path)
    where = setup.open(Echo(setup.runner), UnixAddress(str(free_path)))
    responder = visitors.visit(zmq.REQ, where)
    responder.send(b"hello")
    assert responder.recv() == b"hello"


def test_a_socket_file_whose_owner_lives_is_refused_and_left_in_peace(
    setup: Setup, visitors: Visitors, free_path: Path
) -> None:
    where = setup.open(Echo(setup.runner), UnixAddress(str(free_path)))
    rival = Setup("asyncio")
    try:
        with pytest.raises(AddressInUse, match="is taken: another program listens there"):
            rival.open(Echo(rival.runner), where)
    finally:
        rival.close()
    responder = visitors.visit(zmq.REQ, where)
    responder.send(b"still here")
    assert responder.recv() == b"still here"


def test_a_socket_file_whose_owner_is_too_busy_to_accept_is_refused(setup: Setup, free_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(str(free_path))
        busy.listen(0)
        waiting.connect(str(free_path))
        with pytest.raises(AddressInUse, match="is taken"):
            setup.open(Echo(setup.runner), UnixAddress(str(free_path)))
    assert free_path.exists()


def test_a_path_that_is_a_regular_file_is_refused_and_kept(setup: Setup, free_path: Path) -> None:
    free_path.write_text("precious")
    with pytest.raises(AddressInUse, match="exists and is not a socket"):
        setup.open(Echo(setup.runner), UnixAddress(str(free_path)))
    assert free_path.read_text() == "precious"


def test_a_path_that_leads_to_a_file_by_a_link_is_refused_and_kept(setup: Setup, free_path: Path) -> None:
    precious = free_path.with_name("precious")
    precious.write_text("precious")
    free_path.symlink_to(precious)
    with pytest.raises(AddressInUse, match="exists and is not a socket"):
        setup.open(Echo(setup.runner), UnixAddress(str(free_path)))
    assert free_path.is_symlink()
    assert precious.read_text() == "precious"


def test_a_path_in_a_folder_that_is_missing_is_an_error_that_names_it(setup: Setup, free_path: Path) -> None:
    with pytest.raises(OSError, match=f"cannot listen on {free_path}/s: No such file"):
        setup.open(Echo(setup.runner), UnixAddress(f"{free_path}/s"))


def test_a_socket_file_that_somebody_put_in_our_place_is_not_removed(loop_name: str, free_path: Path) -> None:
    """libzmq removes any file at the path where it binds, so another program can take the path of a running broker."""
    setup = Setup(loop_name)
    rival = socket.socket(socket.AF_UNIX)
    try:
        setup.open(Echo(setup.runner), UnixAddress(str(free_path)))
        free_path.unlink()
        rival.bind(str(free_path))
        rival.listen()
    finally:
        setup.close()
        rival.close()
    assert free_path.exists()


def test_every_tcp_connection_is_tuned(setup: Setup) -> None:
    echo = Echo(setup.runner)
    with Raw(setup.open(echo, LOOPBACK)) as raw:
        raw.greet()
        connected = echo.present[0].stream._socket
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000


def test_a_connection_is_tuned_where_the_system_lacks_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "TCP_KEEPIDLE")
    monkeypatch.delattr(socket, "TCP_USER_TIMEOUT")
    with socket.socket() as connected:
        tune(connected)
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 3


def test_a_broker_that_closes_leaves_no_descriptor_open(loop_name: str, free_path: Path) -> None:
    before = open_descriptors()
    setup = Setup(loop_name)
    echo = Echo(setup.runner)
    raws = [Raw(setup.open(echo, each)) for each in (LOOPBACK, UnixAddress(str(free_path)))]
    raws[0].greet()
    setup.close()
    for raw in raws:
        raw.rest()
        raw.socket.close()
    until(lambda: open_descriptors() <= before, "all descriptors are closed")


# ---------------------------------------------------------------- writes


def test_what_one_turn_produces_for_a_peer_is_written_once(
    setup: Setup, place: SocketAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    write = Stream.write

    def counted(stream: Stream, buffers: list[Frame]) -> None:
        writes.append(len(buffers))
        write(stream, buffers)

    monkeypatch.setattr(Stream, "write", counted)
    echo = Echo(setup.runner)
    with Raw(setup.open(echo, place)) as raw:
        raw.greet()
        writes.clear()
        raw.say(b"".join(bytes((0, 1, number)) for number in range(100)))  # one write, one read, a hundred messages
        assert [raw.receive() for _ in range(100)] == [[bytes((number,))] for number in range(100)]
    assert writes == [100]


def test_a_gathered_write_of_more_buffers_than_the_kernel_takes_at_once_arrives_whole(
    setup: Setup, visitors: Visitors, place: SocketAddress
) -> None:
    """A frame from 16 KiB on is a buffer of its own, and the kernel takes 1024 at most."""
    responder = Asker(setup.runner)
    dealer = visitors.visit(zmq.DEALER, setup.open(responder, place))
    until(lambda: responder.present, "it has greeted")

    def burst() -> None:
        for number in range(1_500):
            setup.runner.connections.send(responder.present[0], [b"%d" % number, bytes(16_384), b""])

    setup.run(burst)
    for number in range(1_500):
        assert dealer.recv_multipart() == [b"%d" % number, bytes(16_384), b""]


def test_where_no_write_gathers_a_burst_arrives_whole(
    setup: Setup, visitors: Visitors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: sockets of Windows have no `sendmsg`, so a write of over 64 KiB ended with an AttributeError there."""
    monkeypatch.setattr(stream_module, "GATHERS", False)
    monkeypatch.setattr(socket.socket, "sendmsg", None, raising=False)
    responder = Asker(setup.runner)
    dealer = visitors.visit(zmq.DEALER, setup.open(responder, LOOPBACK))
    until(lambda: responder.present, "it has greeted")

    def burst() -> None:
        for number in range(200):
            setup.runner.connections.send(responder.present[0], [b"%d" % number, bytes(number * 1_000), b""])

    setup.run(burst)
    for number in range(200):
        assert dealer.recv_multipart() == [b"%d" % number, bytes(number * 1_000), b""]


# ---------------------------------------------------------------- peers that do not read


def test_a_peer_that_stops_reading_is_disconnected_at_its_bound_and_others_are_not(
    setup: Setup, visitors: Visitors, place: SocketAddress
) -> None:
    echo = Echo(setup.runner)
    where = setup.open(echo, place, limits=ConnectionLimits(max_send_buffer=MIB, carrier_ping=14.0))
    with Raw(where, receive_buffer=4_096) as stuck:
        stuck.greet()
        flood(stuck, bytes(65_536), 300)
        until(lambda: echo.losses, "it is disconnected")
    assert echo.losses[0][0].stream.received < 10 * MIB, "its messages were read although it does not read"
    assert setup.counters.connections_closed_slow == 1
    assert setup.journal.mentions("max_send_buffer")
    responder = visitors.visit(zmq.REQ, where)
    responder.send(b"unharmed")
    assert responder.recv() == b"unharmed"


def test_a_peer_that_reads_late_gets_everything(setup: Setup, place: SocketAddress) -> None:
    """R17. A bug: what the broker had piled up for it closed its connection at once."""
    echo = Echo(setup.runner)
    where = setup.open(echo, place, limits=ConnectionLimits(max_send_buffer=65_536))
    with Raw(where, receive_buffer=4_096) as late:
        late.greet()
        flood(late, bytes(65_536), 100)
        budget = setup.runner.connections.registry.budget
        until(lambda: budget.over, "too much waits for it")
        for _ in range(100):
            assert len(late.receive()[0]) == 65_536
        until(lambda: not budget.over, "it has taken everything")
        late.message(b"on time")
        assert late.receive() == [b"on time"]
    assert setup.counters.connections_closed_slow == 0


def test_one_message_larger_than_the_send_buffer_is_still_delivered(
    setup: Setup, visitors: Visitors, place: SocketAddress
) -> None:
    """L5 and carriers.md: the bound is `max_send_buffer`, *or one message if that is larger*. Otherwise the defaults
    (32 MiB of buffer, 64 MiB of payload) would close a connection to which 40 MiB are sent."""
    where = setup.open(Echo(setup.runner), place, limits=ConnectionLimits(max_send_buffer=65_536))
    dealer = visitors.visit(zmq.DEALER, where)
    large = bytes(8 * MIB)
    dealer.send(large)
    assert dealer.recv() == large
    assert setup.counters.connections_closed_slow == 0


def test_the_largest_buffer_goes_first_and_once_when_all_together_are_too_much(
    loop_name: str, place: SocketAddress
) -> None:
    """All in one turn: the largest is still there when the next is written, and was counted and logged again."""
    setup = Setup(loop_name, policy=Policy(max_memory=45 * MIB))
    sizes = {b"large": 32 * MIB, b"middle": 28 * MIB, b"small": 8 * MIB}
    with ExitStack() as crowd:
        crowd.callback(setup.close)
        responder = Asker(setup.runner)
        where = setup.open(responder, place)
        for name in sizes:
            crowd.enter_context(Raw(where, receive_buffer=4_096)).greet(identity=name)
        until(lambda: len(responder.present) == 3, "all have greeted")
        peers = {peer.identity: peer for peer in responder.present}
        setup.run(lambda: [setup.runner.connections.send(peers[name], [bytes(size)]) for name, size in sizes.items()])
        until(lambda: responder.losses, "somebody is disconnected")
        assert [peer.identity for peer, _ in responder.losses] == [b"large"]
        assert setup.counters.connections_closed_slow == 1


def test_a_peer_that_reads_slowly_but_steadily_is_not_taken_for_dead(setup: Setup) -> None:
    """D12 requires a sign of life, but the PING waits behind the bytes being sent, so bytes that leave count as one,
    too. Otherwise a connection that needs longer than `carrier_timeout` (15 s) to receive one large job would be closed
    every time."""
    responder = Asker(setup.runner)
    where = setup.open(responder, LOOPBACK, limits=ConnectionLimits(carrier_ping=0.2, carrier_timeout=1.0))
    size = 8 * MIB
    with Raw(where, receive_buffer=65_536) as slow:
        slow.greet()
        (peer,) = responder.present
        peer.stream._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        setup.send(peer, [bytes(size)])
        took, began = 0, time.monotonic()
        while took < size:
            if time.monotonic() - began < 2.0:
                time.sleep(0.01)  # this is not waiting for something: it is the slowness of this peer
            piece = slow.socket.recv(16_384)
            assert piece, f"it was cut off after {took} bytes: {setup.journal.lines}"
            took += len(piece)
    assert time.monotonic() - began > 1.0, "too fast to prove anything"


# ---------------------------------------------------------------- what these tests need


def leave_stale_socket(path: Path) -> None:
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.listen()
    dead.close()
    assert path.exists()


def flood(raw: Raw, payload: bytes, count: int) -> None:
    """Send repeatedly, from a thread that ends with the connection."""

    def send() -> None:
        try:
            for _ in range(count):
                raw.message(payload)
        except OSError:
            pass

    threading.Thread(target=send, name="flood").start()
