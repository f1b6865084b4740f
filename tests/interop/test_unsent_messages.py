"""Messages that were not sent when a connection ended, by the way it ended."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from house import Asker, Echo, House, Raw, ready_command

from dragoman.carriers.zmtp_commands import OUR_GREETING
from dragoman.sdk.address import SocketAddress, TcpAddress, UnixAddress
from programs import until

LOOPBACK = TcpAddress("127.0.0.1", 0)

# ---------------------------------------------------------------- which messages never left


def test_marks_of_messages_that_never_left_come_back_and_others_do_not(house: House, place: SocketAddress) -> None:
    responder = Asker(house.runner)
    with Raw(house.open(responder, place), receive_buffer=4_096) as raw:
        raw.greet()
        peer = responder.present[0]
        house.send(peer, [b"small"], "left at once")
        assert raw.receive() == [b"small"]
        house.run(lambda: [house.runner.connections.send(peer, [bytes(65_536)], number) for number in range(200)])
        begin, size = first_byte(b"small"), 65_536 + 9
        until(lambda: peer.stream.backlog and peer.stream.sent >= begin + size, "it has fallen behind")
    until(lambda: responder.losses, "it is lost")
    ((lost, unsent),) = responder.losses
    assert lost is peer
    taken = (peer.stream.sent - begin) // size  # messages that the kernel has taken whole
    assert unsent == list(range(taken, 200))
    assert 0 < taken < 200


def test_what_a_slow_peer_reads_later_does_not_come_back(house: House, place: SocketAddress) -> None:
    responder = Asker(house.runner)
    with Raw(house.open(responder, place), receive_buffer=4_096) as raw:
        raw.greet()
        peer = responder.present[0]
        for number in range(20):
            house.send(peer, [bytes(512 * 1024)], number)
        for _ in range(10):
            assert raw.receive() == [bytes(512 * 1024)]
    until(lambda: responder.losses, "it is lost")
    unsent = responder.losses[0][1]
    assert unsent == list(range(20 - len(unsent), 20))
    assert len(unsent) <= 10


def test_a_message_whose_write_fails_never_left(house: House, place: SocketAddress) -> None:
    """The remote side resets the connection. A write before the loop reports that is refused by the kernel: nothing has
    left."""
    responder = Asker(house.runner)
    raw = Raw(house.open(responder, place)).greet()
    until(lambda: responder.present, "it has greeted")

    def write_to_the_dead() -> None:
        raw.reset()
        house.runner.connections.send(responder.present[0], [b"a job"], "never left")
        house.runner.run_once()

    house.run(write_to_the_dead)
    until(lambda: responder.losses, "it is lost")
    assert responder.losses[0][1] == ["never left"]


def test_a_message_that_the_peer_had_not_read_when_it_closed_comes_back(house: House, tmp_path: Path) -> None:
    """R8, on a Unix socket, where the sender is notified of a close with unread bytes."""
    responder = Asker(house.runner)
    raw = Raw(house.open(responder, UnixAddress(str(tmp_path / "s")))).greet()
    until(lambda: responder.present, "it has greeted")
    house.run(write_then, house, responder, ["a job"], raw.socket.close)
    until(lambda: responder.losses, "it is lost")
    assert responder.losses[0][1] == ["a job"]


def test_a_message_written_to_a_peer_that_has_closed_comes_back(house: House) -> None:
    """R8, on TCP, where the bytes leave us and are answered with a reset."""
    responder = Asker(house.runner)
    raw = Raw(house.open(responder, LOOPBACK)).greet()
    until(lambda: responder.present, "it has greeted")

    def close_then_write() -> None:
        raw.socket.close()
        write_then(house, responder, ["a job"], lambda: None)

    house.run(close_then_write)
    until(lambda: responder.losses, "it is lost")
    assert responder.losses[0][1] == ["a job"]


@pytest.mark.parametrize("after", ["nothing", "something unread", "a reset"])
def test_a_message_that_the_peer_has_read_does_not_come_back(house: House, place: SocketAddress, after: str) -> None:
    """R9: also if the connection ends with a reset, which may have another cause."""
    responder = Asker(house.runner)
    raw = Raw(house.open(responder, place)).greet()
    until(lambda: responder.present, "it has greeted")
    peer = responder.present[0]
    house.send(peer, [b"a job"], "a job")
    assert raw.receive() == [b"a job"]
    if after == "something unread":
        house.run(write_then, house, responder, [None], raw.socket.close)
    elif after == "a reset":
        raw.reset()
    else:
        raw.socket.close()
    until(lambda: responder.losses, "it is lost")
    assert responder.losses[0][1] == []


def test_a_message_does_not_come_back_once_the_peer_has_spoken_after_it(house: House, tmp_path: Path) -> None:
    """The received message may be the result; whether a later message was read is not checked."""
    responder = Asker(house.runner)
    raw = Raw(house.open(responder, UnixAddress(str(tmp_path / "s")))).greet()
    until(lambda: responder.present, "it has greeted")
    house.run(write_then, house, responder, ["a job"], lambda: None)
    raw.message(b"a word")
    assert responder.next() == [b"a word"]
    raw.socket.close()
    until(lambda: responder.losses, "it is lost")
    assert responder.losses[0][1] == []


def test_a_peer_is_lost_only_once_however_it_ends(house: House, place: SocketAddress) -> None:
    responder = Asker(house.runner)
    raw = Raw(house.open(responder, place)).greet()
    until(lambda: responder.present, "it has greeted")

    def all_at_once() -> None:
        peer = responder.present[0]
        raw.reset()
        house.runner.connections.close(peer, "once")
        house.runner.connections.send(peer, [b"a word"], "mark")
        house.runner.connections.close(peer, "twice")
        house.runner.run_once()
        house.runner.connections.send(peer, [b"too late"], "unheard")

    house.run(all_at_once)
    until(lambda: responder.losses, "it is lost")
    house.run(lambda: None)
    assert len(responder.losses) == 1
    assert not house.runner.connections.peers
    assert not house.runner.connections.registry.admission.addresses


def test_what_is_said_before_closing_still_arrives(house: House, place: SocketAddress) -> None:
    responder = Asker(house.runner)
    with Raw(house.open(responder, place)) as raw:
        raw.greet()
        raw.message(b"unread" * 1_000)

        def farewell() -> None:
            house.runner.connections.send(responder.present[0], [b"farewell"])
            house.runner.connections.close(responder.present[0], "over")

        house.run(farewell)
        assert raw.receive() == [b"farewell"]
        assert raw.rest() == b""


# ---------------------------------------------------------------- what these tests need


def write_then(house: House, responder: Asker, marks: list[Any], call: Callable[[], object]) -> None:
    """Write within one step of the loop, so that nothing is read meanwhile."""
    for mark in marks:
        house.runner.connections.send(responder.present[0], [b"a word"], mark)
    house.runner.run_once()
    call()


def first_byte(first_message: bytes) -> int:
    """Return the offset of the second message in the sent bytes: after greeting, READY and the first message."""
    ready = ready_command(b"ROUTER", b"house")
    return len(OUR_GREETING) + len(ready) + 2 + len(first_message)


# ---------------------------------------------------------------- how a connection ended


@pytest.mark.parametrize("has_read", [True, False], ids=["read", "unread"])
def test_a_connection_is_closed_in_order_if_the_peer_has_read_all(
    house: House, place: SocketAddress, has_read: bool
) -> None:
    """libnng shuts a socket down before it closes it: the end comes before the reset that unread bytes cause."""
    echo = Echo(house.runner)
    raw = Raw(house.open(echo, place)).greet()
    raw.message(b"hello")
    if has_read:
        assert raw.receive() == [b"hello"]
    else:
        raw.socket.recv(1, socket.MSG_PEEK)

    def close() -> None:  # on the loop's own thread: it sees the end when both have happened
        raw.socket.shutdown(socket.SHUT_RDWR)
        raw.socket.close()

    house.run(close)
    until(lambda: echo.losses, "its end has been seen")
    assert echo.losses[0][0].closed_in_order is has_read


def test_a_connection_that_is_reset_or_closed_by_us_is_not_closed_in_order(house: House, place: SocketAddress) -> None:
    echo = Echo(house.runner)
    where = house.open(echo, place)
    with Raw(where).greet() as raw:
        house.run(house.runner.connections.close, echo.present[0], "the test wants it")
        raw.rest()
    until(lambda: echo.losses, "it has been closed")
    raw = Raw(where).greet()
    raw.message(b"hello")
    raw.socket.recv(1, socket.MSG_PEEK)
    raw.reset()
    until(lambda: len(echo.losses) == 2, "its end has been seen")
    assert [peer.closed_in_order for peer, _ in echo.losses] == [False, False]
