"""Streams and the line on top of them: places, gathered writes, bounded buffers, what never left, our own faults."""

from __future__ import annotations

import socket
import stat
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import zmq
from house import MIB, Asker, Echo, House, Raw, Visitors, open_descriptors, ready_command

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_commands import OUR_GREETING
from dragoman.core.broker import Broker
from dragoman.core.policy import Policy
from dragoman.dialects.pingpong.options import ListenerOptions
from dragoman.dialects.pingpong.session import PingPongSession
from dragoman.diary.memory import MemoryDiary
from dragoman.sdk.address import Place, TcpPlace, UnixPlace
from dragoman.server.admission import Limits
from dragoman.server.peer import Peer
from dragoman.server.peer_limits import PeerLimits
from dragoman.server.runner import Runner
from dragoman.streams.places import PlaceTaken
from dragoman.streams.stream import Stream
from dragoman.testing.entropy import SeededEntropy
from programs import until

LOOPBACK = TcpPlace("127.0.0.1", 0)


# ---------------------------------------------------------------- places


def test_a_port_that_is_taken_is_refused_and_named(house: House) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PlaceTaken, match=rf"127\.0\.0\.1:{port} is taken"):
            house.open(Echo(house.line), TcpPlace("127.0.0.1", port))


def test_a_host_that_is_not_ours_is_an_error_that_names_it(house: House) -> None:
    with pytest.raises(OSError, match=r"cannot listen on 192\.0\.2\.1:7"):
        house.open(Echo(house.line), TcpPlace("192.0.2.1", 7))
    with pytest.raises(OSError, match=r"cannot resolve 'no\.such\.host\.invalid'"):
        house.open(Echo(house.line), TcpPlace("no.such.host.invalid", 7))


def test_a_socket_file_is_for_its_owner_only_and_goes_when_we_do(loop_name: str, free_path: Path) -> None:
    house = House(loop_name)
    try:
        house.open(Echo(house.line), UnixPlace(str(free_path)))
        assert stat.S_IMODE(free_path.stat().st_mode) == 0o600
    finally:
        house.close()
    assert not free_path.exists()


def test_a_socket_file_whose_owner_died_is_cleaned_away(house: House, visitors: Visitors, free_path: Path) -> None:
    leave_stale_socket(free_path)
    where = house.open(Echo(house.line), UnixPlace(str(free_path)))
    asker = visitors.visit(zmq.REQ, where)
    asker.send(b"hello")
    assert asker.recv() == b"hello"


def test_a_socket_file_whose_owner_lives_is_refused_and_left_in_peace(
    house: House, visitors: Visitors, free_path: Path
) -> None:
    where = house.open(Echo(house.line), UnixPlace(str(free_path)))
    rival = House("asyncio")
    try:
        with pytest.raises(PlaceTaken, match="is taken: another program listens there"):
            rival.open(Echo(rival.line), where)
    finally:
        rival.close()
    asker = visitors.visit(zmq.REQ, where)
    asker.send(b"still here")
    assert asker.recv() == b"still here"


def test_a_socket_file_whose_owner_is_too_busy_to_accept_is_refused(house: House, free_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(str(free_path))
        busy.listen(0)
        waiting.connect(str(free_path))
        with pytest.raises(PlaceTaken, match="is taken"):
            house.open(Echo(house.line), UnixPlace(str(free_path)))
    assert free_path.exists()


def test_a_path_that_is_a_regular_file_is_refused_and_kept(house: House, free_path: Path) -> None:
    free_path.write_text("precious")
    with pytest.raises(PlaceTaken, match="exists and is not a socket"):
        house.open(Echo(house.line), UnixPlace(str(free_path)))
    assert free_path.read_text() == "precious"


def test_a_path_that_leads_to_a_file_by_a_link_is_refused_and_kept(house: House, free_path: Path) -> None:
    precious = free_path.with_name("precious")
    precious.write_text("precious")
    free_path.symlink_to(precious)
    with pytest.raises(PlaceTaken, match="exists and is not a socket"):
        house.open(Echo(house.line), UnixPlace(str(free_path)))
    assert free_path.is_symlink()
    assert precious.read_text() == "precious"


def test_a_path_in_a_folder_that_is_missing_is_an_error_that_names_it(house: House, free_path: Path) -> None:
    with pytest.raises(OSError, match=f"cannot listen on {free_path}/s: No such file"):
        house.open(Echo(house.line), UnixPlace(f"{free_path}/s"))


def test_a_socket_file_that_somebody_put_in_our_place_is_not_removed(loop_name: str, free_path: Path) -> None:
    """libzmq removes whatever lies where it binds, so a rival can take our path while we live."""
    house = House(loop_name)
    rival = socket.socket(socket.AF_UNIX)
    try:
        house.open(Echo(house.line), UnixPlace(str(free_path)))
        free_path.unlink()
        rival.bind(str(free_path))
        rival.listen()
    finally:
        house.close()
        rival.close()
    assert free_path.exists()


def test_every_tcp_connection_is_tuned(house: House) -> None:
    echo = Echo(house.line)
    with Raw(house.open(echo, LOOPBACK)) as raw:
        raw.greet()
        connected = echo.present[0].stream._socket
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000


def test_a_house_that_closes_leaves_no_descriptor_open(loop_name: str, free_path: Path) -> None:
    before = open_descriptors()
    house = House(loop_name)
    echo = Echo(house.line)
    raws = [Raw(house.open(echo, each)) for each in (LOOPBACK, UnixPlace(str(free_path)))]
    raws[0].greet()
    house.close()
    for raw in raws:
        raw.rest()
        raw.socket.close()
    until(lambda: open_descriptors() <= before, "all descriptors are closed")


# ---------------------------------------------------------------- writes


def test_what_one_turn_produces_for_a_peer_is_written_once(
    house: House, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    write = Stream.write

    def counted(stream: Stream, buffers: list[Frame]) -> None:
        writes.append(len(buffers))
        write(stream, buffers)

    monkeypatch.setattr(Stream, "write", counted)
    echo = Echo(house.line)
    with Raw(house.open(echo, place)) as raw:
        raw.greet()
        writes.clear()
        raw.say(b"".join(bytes((0, 1, number)) for number in range(100)))  # one write, one read, a hundred messages
        assert [raw.hear() for _ in range(100)] == [[bytes((number,))] for number in range(100)]
    assert writes == [100]


def test_a_gathered_write_of_more_buffers_than_the_kernel_takes_at_once_arrives_whole(
    house: House, visitors: Visitors, place: Place
) -> None:
    """A frame from 16 KiB on is a buffer of its own, and the kernel takes 1024 at most."""
    asker = Asker(house.line)
    dealer = visitors.visit(zmq.DEALER, house.open(asker, place))
    until(lambda: asker.present, "it has greeted")

    def burst() -> None:
        for number in range(1_500):
            house.line.connections.send(asker.present[0], [b"%d" % number, bytes(16_384), b""])

    house.run(burst)
    for number in range(1_500):
        assert dealer.recv_multipart() == [b"%d" % number, bytes(16_384), b""]


# ---------------------------------------------------------------- peers that do not read


def test_a_peer_that_stops_reading_is_disconnected_at_its_bound_and_others_are_not(
    house: House, visitors: Visitors, place: Place
) -> None:
    echo = Echo(house.line)
    where = house.open(echo, place, limits=PeerLimits(max_send_buffer=MIB))
    with Raw(where, receive_buffer=4_096) as stuck:
        stuck.greet()
        flood(stuck, bytes(65_536), 300)
        until(lambda: echo.losses, "it is disconnected")
    assert house.counters.disconnected_slow == 1
    assert house.journal.mentions("max_send_buffer")
    asker = visitors.visit(zmq.REQ, where)
    asker.send(b"unharmed")
    assert asker.recv() == b"unharmed"


def test_one_message_larger_than_the_send_buffer_is_still_delivered(
    house: House, visitors: Visitors, place: Place
) -> None:
    """L5 and carriers.md: the bound is `max_send_buffer`, *or one message if that is larger*.

    Otherwise the defaults (32 MiB of buffer, 64 MiB of payload) cut off whoever is sent 40 MiB.
    """
    where = house.open(Echo(house.line), place, limits=PeerLimits(max_send_buffer=65_536))
    dealer = visitors.visit(zmq.DEALER, where)
    large = bytes(8 * MIB)
    dealer.send(large)
    assert dealer.recv() == large
    assert house.counters.disconnected_slow == 0


def test_the_largest_buffer_goes_first_and_once_when_all_together_are_too_much(loop_name: str, place: Place) -> None:
    """All in one turn: the largest is still there when the next is written, and was counted and logged again."""
    house = House(loop_name, Limits(max_memory=45 * MIB))
    sizes = {b"large": 32 * MIB, b"middle": 28 * MIB, b"small": 8 * MIB}
    with ExitStack() as crowd:
        crowd.callback(house.close)
        asker = Asker(house.line)
        where = house.open(asker, place)
        for name in sizes:
            crowd.enter_context(Raw(where, receive_buffer=4_096)).greet(identity=name)
        until(lambda: len(asker.present) == 3, "all have greeted")
        peers = {peer.identity: peer for peer in asker.present}
        house.run(lambda: [house.line.connections.send(peers[name], [bytes(size)]) for name, size in sizes.items()])
        until(lambda: asker.losses, "somebody is disconnected")
        assert [peer.identity for peer, _ in asker.losses] == [b"large"]
        assert house.counters.disconnected_slow == 1


def test_a_peer_that_reads_slowly_but_steadily_is_not_taken_for_dead(house: House) -> None:
    """D12 asks for a life sign, but the PING stands behind what is being sent: bytes that go out are a life sign too.

    Without that, whoever needs longer than `carrier_timeout` (15 s) to take in one large job is cut off every time.
    """
    asker = Asker(house.line)
    where = house.open(asker, LOOPBACK, limits=PeerLimits(carrier_ping=0.2, carrier_timeout=1.0))
    size = 8 * MIB
    with Raw(where, receive_buffer=65_536) as slow:
        slow.greet()
        (peer,) = asker.present
        peer.stream._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        house.send(peer, [bytes(size)])
        took, began = 0, time.monotonic()
        while took < size:
            if time.monotonic() - began < 2.0:
                time.sleep(0.01)  # this is not waiting for something: it is the slowness of this peer
            piece = slow.socket.recv(16_384)
            assert piece, f"it was cut off after {took} bytes: {house.journal.lines}"
            took += len(piece)
    assert time.monotonic() - began > 1.0, "too fast to prove anything"


# ---------------------------------------------------------------- which messages never left


def test_marks_of_messages_that_never_left_come_back_and_others_do_not(house: House, place: Place) -> None:
    asker = Asker(house.line)
    with Raw(house.open(asker, place), receive_buffer=4_096) as raw:
        raw.greet()
        peer = asker.present[0]
        house.send(peer, [b"small"], "left at once")
        assert raw.hear() == [b"small"]
        house.run(lambda: [house.line.connections.send(peer, [bytes(65_536)], number) for number in range(200)])
        until(lambda: peer.stream.backlog, "it has fallen behind")
        sent = settled(lambda: peer.stream.sent)
    until(lambda: asker.losses, "it is lost")
    ((lost, unsent),) = asker.losses
    assert lost is peer
    taken = (sent - first_byte(b"small")) // (65_536 + 9)  # messages that the kernel has taken whole
    assert unsent == list(range(taken, 200))
    assert 0 < taken < 200


def test_what_a_slow_peer_reads_later_does_not_come_back(house: House, place: Place) -> None:
    asker = Asker(house.line)
    with Raw(house.open(asker, place), receive_buffer=4_096) as raw:
        raw.greet()
        peer = asker.present[0]
        for number in range(20):
            house.send(peer, [bytes(512 * 1024)], number)
        for _ in range(10):
            assert raw.hear() == [bytes(512 * 1024)]
        settled(lambda: peer.stream.sent)
    until(lambda: asker.losses, "it is lost")
    unsent = asker.losses[0][1]
    assert unsent == list(range(20 - len(unsent), 20))
    assert len(unsent) <= 10


def test_a_message_whose_write_fails_never_left(house: House, place: Place) -> None:
    """A peer resets its connection; before the loop hears of it, we write: the kernel refuses, so nothing has left."""
    asker = Asker(house.line)
    raw = Raw(house.open(asker, place)).greet()
    until(lambda: asker.present, "it has greeted")

    def write_to_the_dead() -> None:
        raw.reset()
        house.line.connections.send(asker.present[0], [b"a job"], "never left")
        house.line.turn()

    house.run(write_to_the_dead)
    until(lambda: asker.losses, "it is lost")
    assert asker.losses[0][1] == ["never left"]


def test_a_message_that_the_peer_had_not_read_when_it_closed_comes_back(house: House, tmp_path: Path) -> None:
    """R8, on a Unix socket, where closing with unread bytes is told to the sender."""
    asker = Asker(house.line)
    raw = Raw(house.open(asker, UnixPlace(str(tmp_path / "s")))).greet()
    until(lambda: asker.present, "it has greeted")
    house.run(write_then, house, asker, ["a job"], raw.socket.close)
    until(lambda: asker.losses, "it is lost")
    assert asker.losses[0][1] == ["a job"]


def test_a_message_written_to_a_peer_that_has_closed_comes_back(house: House) -> None:
    """R8, on TCP, where the bytes leave us and are answered with a reset."""
    asker = Asker(house.line)
    raw = Raw(house.open(asker, LOOPBACK)).greet()
    until(lambda: asker.present, "it has greeted")

    def close_then_write() -> None:
        raw.socket.close()
        write_then(house, asker, ["a job"], lambda: None)

    house.run(close_then_write)
    until(lambda: asker.losses, "it is lost")
    assert asker.losses[0][1] == ["a job"]


@pytest.mark.parametrize("after", ["nothing", "something unread", "a reset"])
def test_a_message_that_the_peer_has_read_does_not_come_back(house: House, place: Place, after: str) -> None:
    """R9: also if the connection ends with a reset, which may have another cause."""
    asker = Asker(house.line)
    raw = Raw(house.open(asker, place)).greet()
    until(lambda: asker.present, "it has greeted")
    peer = asker.present[0]
    house.send(peer, [b"a job"], "a job")
    assert raw.hear() == [b"a job"]
    if after == "something unread":
        house.run(write_then, house, asker, [None], raw.socket.close)
    elif after == "a reset":
        raw.reset()
    else:
        raw.socket.close()
    until(lambda: asker.losses, "it is lost")
    assert asker.losses[0][1] == []


def test_a_message_does_not_come_back_once_the_peer_has_spoken_after_it(house: House, tmp_path: Path) -> None:
    """What it says may be the result; whether a word behind that was read is not asked."""
    asker = Asker(house.line)
    raw = Raw(house.open(asker, UnixPlace(str(tmp_path / "s")))).greet()
    until(lambda: asker.present, "it has greeted")
    house.run(write_then, house, asker, ["a job"], lambda: None)
    raw.message(b"a word")
    assert asker.next() == [b"a word"]
    raw.socket.close()
    until(lambda: asker.losses, "it is lost")
    assert asker.losses[0][1] == []


def test_a_peer_is_lost_only_once_however_it_ends(house: House, place: Place) -> None:
    asker = Asker(house.line)
    raw = Raw(house.open(asker, place)).greet()
    until(lambda: asker.present, "it has greeted")

    def all_at_once() -> None:
        peer = asker.present[0]
        raw.reset()
        house.line.connections.close(peer, "once")
        house.line.connections.send(peer, [b"a word"], "mark")
        house.line.connections.close(peer, "twice")
        house.line.turn()
        house.line.connections.send(peer, [b"too late"], "unheard")

    house.run(all_at_once)
    until(lambda: asker.losses, "it is lost")
    house.run(lambda: None)
    assert len(asker.losses) == 1
    assert not house.line.connections.peers
    assert not house.line.connections.admission.addresses


def test_what_is_said_before_closing_still_arrives(house: House, place: Place) -> None:
    asker = Asker(house.line)
    with Raw(house.open(asker, place)) as raw:
        raw.greet()
        raw.message(b"unread" * 1_000)

        def farewell() -> None:
            house.line.connections.send(asker.present[0], [b"farewell"])
            house.line.connections.close(asker.present[0], "over")

        house.run(farewell)
        assert raw.hear() == [b"farewell"]
        assert raw.rest() == b""


# ---------------------------------------------------------------- our own faults and pauses


class Clumsy(Echo):
    """Fails where it is told to, once."""

    def __init__(self, line: Runner, fault: str) -> None:
        super().__init__(line)
        self.fault = fault

    def stumble(self, where: str) -> None:
        if where == self.fault:
            self.fault = ""
            raise RuntimeError(f"clumsy in {where}")

    def opened(self, peer: Any, now: float) -> None:
        super().opened(peer, now)
        self.stumble("opened")

    def hear(self, peer: Any, message: Message | TooLarge, now: float) -> None:
        self.stumble("hear")
        super().hear(peer, message, now)

    def lost(self, peer: Any, unsent: Any, now: float) -> None:
        super().lost(peer, unsent, now)
        self.stumble("lost")

    def tick(self, now: float) -> float:
        self.stumble("tick")
        return super().tick(now)


@pytest.mark.parametrize("fault", ["opened", "hear", "lost", "tick"])
def test_a_fault_in_a_session_is_counted_and_the_line_goes_on(loop_name: str, visitors: Visitors, fault: str) -> None:
    """R27: every call of a session is fenced. An exception that leaves a turn would leave it without its next turn."""
    house = House(loop_name)
    try:
        echo, clumsy = Echo(house.line), Clumsy(house.line, "")
        well = house.open(echo, LOOPBACK)
        where = house.open(clumsy, LOOPBACK)
        asker = visitors.visit(zmq.REQ, well)
        asker.send(b"before")
        assert asker.recv() == b"before"
        clumsy.fault = fault
        with Raw(where) as raw:
            raw.say(OUR_GREETING + ready_command(b"DEALER"))
            raw.message(b"stumble")
        until(lambda: not clumsy.fault, "it has stumbled")
        asker.rcvtimeo = 3_000
        asker.send(b"after")
        assert asker.recv() == b"after"
        assert house.counters.internal_errors == 1
    finally:
        house.close()


def test_our_own_pause_times_no_handshake_out(house: House) -> None:
    """D13: a peer that was greeting when we were stopped is not late; we are."""
    asker = Asker(house.line)
    where = house.open(asker, LOOPBACK, limits=PeerLimits(handshake_timeout=1.5))
    with Raw(where) as raw:
        raw.say(OUR_GREETING[:20])
        until(lambda: house.line.connections.peers, "we have met")
        assert raw.take(64) == OUR_GREETING

        def pause() -> None:
            raw.say(OUR_GREETING[20:])
            time.sleep(2.6)

        house.run(pause)
        assert raw.next()[1].startswith(b"\x05READY")
        raw.say(ready_command(b"DEALER"))
        until(lambda: asker.present, "the handshake is done")


class Pipe:
    """A stream that goes nowhere; `read` is what reading it does."""

    def __init__(self, read: Callable[[], None] = lambda: None) -> None:
        self.sent = 0
        self.received = 0
        self.backlog = 0
        self.closed_in_order = False
        self.read_dry = read

    def write(self, buffers: list[Frame]) -> None:
        self.sent += sum(map(len, buffers))

    def close(self) -> None: ...


def test_the_time_it_takes_to_read_all_sockets_after_a_pause_is_excused_as_well() -> None:
    """D13: reading dry may take a second; those who could not be read by then were not late either."""
    now = 100.0

    def read() -> None:
        nonlocal now
        now += 0.3

    broker = Broker(Policy(), SeededEntropy())
    line = Runner(broker, MemoryDiary(), lambda: now, lambda *_, **__: None, Limits())
    session = PingPongSession(broker, line.connections, ListenerOptions(worker_expire=1.0), MIB, now)
    line.sessions.append(session)
    for number in range(10):
        carrier = Zmtp("ROUTER")
        peer = line.connections.connected(session, "backend", carrier, Pipe(read), f"peer {number}", "address")
        line.connections.arrived(peer, carrier.feed(OUR_GREETING + ready_command(b"DEALER") + b"\x01\x00\x00\x05READY"))
    line.turn()
    assert len(broker.roster.workers) == 10
    now += 10.0
    line.turn()
    assert broker.counters.expired_workers == 0


class Unending:
    """Limits that notice when somebody asks for them without end."""

    handshake_timeout = 10.0
    carrier_timeout = 0.4
    max_send_buffer = 1

    def __init__(self) -> None:
        self.asked = 0

    @property
    def carrier_ping(self) -> float:
        self.asked += 1
        assert self.asked < 1_000, "a turn that never ends"
        return 0.1


@pytest.mark.parametrize("began", [0.3, 7.7, 1_234.567, 86_400.1])
def test_a_turn_at_the_very_instant_a_life_sign_is_due_comes_to_an_end(began: float) -> None:
    """(heard + 0.1) - heard is not always 0.1. Judged by the difference nothing was due, and armed for now again.

    With a clock that is moved by hand, and once in a while with a real one, the turn went round for ever.
    """
    now = began
    broker = Broker(Policy(), SeededEntropy())
    line = Runner(broker, MemoryDiary(), lambda: now, lambda *_, **__: None, Limits())
    asker = Asker(line)
    limits: Any = Unending()
    carrier = Zmtp("ROUTER")
    peer: Peer = line.connections.connected(asker, "door", carrier, Pipe(), "peer", "address", limits)
    line.connections.arrived(peer, carrier.feed(OUR_GREETING + ready_command(b"DEALER")))
    for _ in range(100):
        limits.asked = 0
        now = line.turn()
        if asker.losses:
            break
    assert asker.losses, "a peer that never answers is lost in the end"


# ---------------------------------------------------------------- what these tests need


def leave_stale_socket(path: Path) -> None:
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.listen()
    dead.close()
    assert path.exists()


def write_then(house: House, asker: Asker, marks: list[Any], call: Callable[[], object]) -> None:
    """Within one step of the loop: nothing is read meanwhile."""
    for mark in marks:
        house.line.connections.send(asker.present[0], [b"a word"], mark)
    house.line.turn()
    call()


def flood(raw: Raw, payload: bytes, count: int) -> None:
    """Send and send, from a thread that ends when the connection does."""

    def send() -> None:
        try:
            for _ in range(count):
                raw.message(payload)
        except OSError:
            pass

    threading.Thread(target=send, name="flood").start()


def settled(number: Callable[[], int]) -> int:
    """A number, once it has stopped changing."""
    last, since = number(), time.monotonic()
    while time.monotonic() - since < 0.3:
        time.sleep(0.01)
        now = number()
        if now != last:
            last, since = now, time.monotonic()
    return last


def first_byte(first_message: bytes) -> int:
    """Where the second message begins in what we send: behind greeting, READY and the first."""
    ready = ready_command(b"ROUTER", b"house")
    return len(OUR_GREETING) + len(ready) + 2 + len(first_message)


# ---------------------------------------------------------------- how a connection ended


@pytest.mark.parametrize("has_read", [True, False], ids=["read", "unread"])
def test_a_connection_is_closed_in_order_if_the_peer_has_read_all(house: House, place: Place, has_read: bool) -> None:
    """libnng shuts a socket down before it closes it: the end comes before the reset that unread bytes cause."""
    echo = Echo(house.line)
    raw = Raw(house.open(echo, place)).greet()
    raw.message(b"hello")
    if has_read:
        assert raw.hear() == [b"hello"]
    else:
        raw.socket.recv(1, socket.MSG_PEEK)

    def close() -> None:  # on the loop's own thread: it sees the end when both have happened
        raw.socket.shutdown(socket.SHUT_RDWR)
        raw.socket.close()

    house.run(close)
    until(lambda: echo.losses, "its end has been seen")
    assert echo.losses[0][0].closed_in_order is has_read


def test_a_connection_that_is_reset_or_closed_by_us_is_not_closed_in_order(house: House, place: Place) -> None:
    echo = Echo(house.line)
    where = house.open(echo, place)
    with Raw(where).greet() as raw:
        house.run(house.line.connections.close, echo.present[0], "the test wants it")
        raw.rest()
    until(lambda: echo.losses, "it has been closed")
    raw = Raw(where).greet()
    raw.message(b"hello")
    raw.socket.recv(1, socket.MSG_PEEK)
    raw.reset()
    until(lambda: len(echo.losses) == 2, "its end has been seen")
    assert [peer.closed_in_order for peer, _ in echo.losses] == [False, False]
