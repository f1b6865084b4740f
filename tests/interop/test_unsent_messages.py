"""Messages that were not sent when a connection ended, by the way it ended."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broker_setup import Asker, Echo, Raw, Setup, ready_command

from dragoman.carriers.zmtp_commands import OUR_GREETING
from dragoman.sdk.address import SocketAddress, TcpAddress, UnixAddress
from programs import until

LOOPBACK = TcpAddress("127.0.0.1", 0)

# ---------------------------------------------------------------- which messages never left


def test_marks_of_messages_that_never_left_come_back_and_others_do_not(setup: Setup, place: SocketAddress) -> None:
    responder = Asker(setup.runner)
    with Raw(setup.open(responder, place), receive_buffer=4_096) as raw:
        raw.greet()
        peer = responder.present[0]
        setup.send(peer, [b"small"], "left at once")
        assert raw.receive() == [b"small"]
        setup.run(lambda: [setup.runner.connections.send(peer, [bytes(65_536)], number) for number in range(200)])
        begin, size = first_byte(b"small"), 65_536 + 9
        until(lambda: peer.stream.backlog and peer.stream.sent >= begin + size, "it has fallen behind")
    until(lambda: responder.losses, "it is lost")
    ((lost, unsent),) = responder.losses
    assert lost is peer
    taken = (peer.stream.sent - begin) // size  # messages that the kernel has taken whole
    assert unsent == list(range(taken, 200))
    assert 0 < taken < 200


def test_what_a_slow_peer_reads_later_does_not_come_back(setup: Setup, place: SocketAddress) -> None:
    responder = Asker(setup.runner)
    with Raw(setup.open(responder, place), receive_buffer=4_096) as raw:
        raw.greet()
        peer = responder.present[0]
        for number in range(20):
            setup.send(peer, [bytes(512 * 1024)], number)
        for _ in range(10):
            assert raw.receive() == [bytes(512 * 1024)]
    until(lambda: responder.losses, "it is lost")
    unsent = responder.losses[0][1]
    assert unsent == list(range(20 - len(unsent), 20))
    assert len(unsent) <= 10


def test_a_message_whose_write_fails_never_left(setup: Setup, place: SocketAddress) -> None:
    """The remote side resets the connection. A write before the loop reports that is refused by the kernel: nothing has
    left."""
    responder = Asker(setup.runner)
    raw = Raw(setup.open(responder, place)).greet()
    until(lambda: responder.present, "it has greeted")

    def write_to_the_dead() -> None:
        raw.reset()
        setup.runner.connections.send(responder.present[0], [b"a job"], "never left")
        setup.runner.run_once()

    setup.run(write_to_the_dead)
    until(lambda: responder.losses, "it is lost")
    assert responder.losses[0][1] == ["never left"]


def test_a_message_that_the_peer_had_not_read_when_it_closed_comes_back(setup: Setup, tmp_path: Path) -> None:
    """R8, on a Unix socket, where the sender is notified of a close with unread bytes."""
    responder = Asker(setup.runner)
    raw = Raw(setup.open(responder, UnixAddress(str(tmp_path / "s")))).greet()
    until(lambda: responder.present, "it has greeted")
    setup.run(write_then, setup, responder, ["a job"], raw.socket.close)
    until(lambda: responder.losses, "it is lost")
    assert responder.losses[0][1] == ["a job"]


def test_a_message_written_to_a_peer_that_has_closed_comes_back(setup: Setup) -> None:
    """R8, on TCP, where the bytes leave us and are answered with a reset."""
    responder = Asker(setup.runner)
    raw = Raw(setup.open(responder, LOOPBACK)).greet()
    until(lambda: responder.present, "it has greeted")

    def close_then_write() -> None:
        raw.socket.close()
        write_then(setup, responder, ["a job"], lambda: None)

    setup.run(close_then_write)
    until(lambda: responder.losses, "it is lost")
    assert responder.losses[0][1] == ["a job"]


@pytest.mark.parametrize("after", ["nothing", "something unread", "a reset"])
def test_a_message_that_the_peer_has_read_does_not_come_back(setup: Setup, place: SocketAddress, after: str) -> None:
    """R9: also if the connection ends with a reset, which may have another cause."""
    responder = Asker(setup.runner)
    raw = Raw(setup.open(responder, place)).greet()
    until(lambda: responder.present, "it has greeted")
    peer = responder.present[0]
    setup.send(peer, [b"a job"], "a job")
    assert raw.receive() == [b"a job"]
    if after == "something unread":
        setup.run(write_then, setup, responder, [None], raw.socket.close)
    elif after == "a reset":
        raw.reset()
    else:
        raw.socket.close()
    until(lambda: responder.losses, "it is lost")
    assert responder.losses[0][1] == []


def test_a_message_does_not_come_back_once_the_peer_has_spoken_after_it(setup: Setup, tmp_path: Path) -> None:
    """The received message may be the result; whether a later message was read is not checked."""
    responder = Asker(setup.runner)
    raw = Raw(setup.open(responder, UnixAddress(str(tmp_path / "s")))).greet()
    until(lambda: responder.present, "it has greeted")
    setup.run(write_then, setup, responder, ["a job"], lambda: None)
    raw.message(b"a word")
    assert responder.next() == [b"a word"]
    raw.socket.close()
    until(lambda: responder.losses, "it is lost")
    assert responder.losses[0][1] == []


def test_a_peer_is_lost_only_once_however_it_ends(setup: Setup, place: SocketAddress) -> None:
    responder = Asker(setup.runner)
    raw = Raw(setup.open(responder, place)).greet()
    until(lambda: responder.present, "it has greeted")

    def all_at_once() -> None:
        peer = responder.present[0]
        raw.reset()
        setup.runner.connections.close(peer, "once")
        setup.runner.connections.send(peer, [b"a word"], "mark")
        setup.runner.connections.close(peer, "twice")
        setup.runner.run_once()
        setup.runner.connections.send(peer, [b"too late"], "unheard")

    setup.run(all_at_once)
    until(lambda: responder.losses, "it is lost")
    setup.run(lambda: None)
    assert len(responder.losses) == 1
    assert not setup.runner.connections.peers
    assert not setup.runner.connections.registry.admission.addresses


def test_what_is_said_before_closing_still_arrives(setup: Setup, place: SocketAddress) -> None:
    responder = Asker(setup.runner)
    with Raw(setup.open(responder, place)) as raw:
        raw.greet()
        raw.message(b"unread" * 1_000)

        def farewell() -> None:
            setup.runner.connections.send(responder.present[0], [b"farewell"])
            setup.runner.connections.close(responder.present[0], "over")

        setup.run(farewell)
        assert raw.receive() == [b"farewell"]
        assert raw.rest() == b""


# ---------------------------------------------------------------- what these tests need


def write_then(setup: Setup, responder: Asker, marks: list[Any], call: Callable[[], object]) -> None:
    """Write within one step of the loop, so that nothing is read meanwhile."""
    for mark in marks:
        setup.runner.connections.send(responder.present[0], [b"a word"], mark)
    setup.runner.run_once()
    call()


def first_byte(first_message: bytes) -> int:
    """Return the offset of the second message in the sent bytes: after greeting, READY and the first message."""
    ready = ready_command(b"ROUTER", b"setup")
    return len(OUR_GREETING) + len(ready) + 2 + len(first_message)


# ---------------------------------------------------------------- how a connection ended


@pytest.mark.parametrize("has_read", [True, False], ids=["read", "unread"])
def test_a_connection_is_closed_in_order_if_the_peer_has_read_all(
    setup: Setup, place: SocketAddress, has_read: bool
) -> None:
    """libnng shuts a socket down before it closes it: the end comes before the reset that unread bytes cause."""
    echo = Echo(setup.runner)
    raw = Raw(setup.open(echo, place)).greet()
    raw.message(b"hello")
    if has_read:
        assert raw.receive() == [b"hello"]
    else:
        raw.socket.recv(1, socket.MSG_PEEK)

    def close() -> None:  # on the loop's own thread: it sees the end when both have happened
        raw.socket.shutdown(socket.SHUT_RDWR)
        raw.socket.close()

    setup.run(close)
    until(lambda: echo.losses, "its end has been seen")
    assert echo.losses[0][0].closed_in_order is has_read


def test_a_connection_that_is_reset_or_closed_by_us_is_not_closed_in_order(setup: Setup, place: SocketAddress) -> None:
    echo = Echo(setup.runner)
    where = setup.open(echo, place)
    with Raw(where).greet() as raw:
        setup.run(setup.runner.connections.close, echo.present[0], "the test wants it")
        raw.rest()
    until(lambda: echo.losses, "it has been closed")
    raw = Raw(where).greet()
    raw.message(b"hello")
    raw.socket.recv(1, socket.MSG_PEEK)
    raw.reset()
    until(lambda: len(echo.losses) == 2, "its end has been seen")
    assert [peer.closed_in_order for peer, _ in echo.losses] == [False, False]
