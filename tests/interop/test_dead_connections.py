"""The end of a connection is detected on every listener and both event loops, whatever came before it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from broker_setup import Asker, BrokerSetup, Raw, Setup, open_descriptors, ready_command

from dragoman.carriers.sp import Sp
from dragoman.carriers.zmtp_commands import OUR_GREETING
from dragoman.sdk.address import UnixAddress
from programs import until

Start = Callable[..., BrokerSetup]

COUNT = 100
PATIENT = "handshake_timeout=600&carrier_ping=500&carrier_timeout=600"  # no time-out ends a connection for us
SP_GREETING = b"\0SP\0\0\x30\0\0"
SP_PART = b"\0\0\0\0\0\0\1\0"  # the length of a message that never comes
ZMTP_GREETING = OUR_GREETING + ready_command(b"DEALER")
ZMTP_PART = b"\0\xff123456"  # a frame of 255 bytes that ends after six

# By listener: its URL, a complete greeting, and 8 bytes that may follow it.
LISTENERS = {
    "memodb tcp": (f"memodb+tcp://127.0.0.1:0?{PATIENT}", SP_GREETING, SP_PART),
    "memodb ipc": (f"memodb+ipc://PATH?{PATIENT}", SP_GREETING, b"\1" + SP_PART[:7]),
    "native tcp": (f"tcp://127.0.0.1:0?{PATIENT}", ZMTP_GREETING, ZMTP_PART),
    "native ipc": (f"ipc://PATH?{PATIENT}", ZMTP_GREETING, ZMTP_PART),
    "pingpong tcp": (f"pingpong+tcp://127.0.0.1:0?frontend=0&{PATIENT}", ZMTP_GREETING, ZMTP_PART),
    "pingpong ipc": (f"pingpong+ipc://PATH?{PATIENT}", ZMTP_GREETING, ZMTP_PART),
    "powerhose tcp": (f"powerhose+tcp://127.0.0.1:0?frontend=0&{PATIENT}", ZMTP_GREETING, ZMTP_PART),
    "majordomo tcp": (f"majordomo+tcp://127.0.0.1:0?{PATIENT}", ZMTP_GREETING, ZMTP_PART),
    "controller unix": ("controller+unix://PATH", b"", b"\0\0\0\0\0\0\0\1"),
}


@pytest.fixture(params=LISTENERS)
def listener(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def broker(broker_setup: Start, loop_name: str, listener: str, free_path: Path) -> BrokerSetup:
    return broker_setup(LISTENERS[listener][0].replace("PATH", str(free_path)), loop=loop_name)


def connections(broker: BrokerSetup) -> int:
    return len(broker.runner.connections.peers)


def test_connections_that_send_eight_bytes_and_close_are_let_go(broker: BrokerSetup, listener: str) -> None:
    """A bug: under uvloop a MemoDB connection that sent its greeting and closed stayed open for ever. The broker's
    greeting caused a reset, the reader was called once, for the greeting, and the end was never read. With 10,000 of
    these no local client could connect any more."""
    _, greeting, part = LISTENERS[listener]
    before = open_descriptors()
    for place in broker.places[0].values():
        for _ in range(COUNT):
            with Raw(place) as raw:
                raw.say((greeting or part)[:8])
    until(lambda: not connections(broker), "all have been let go")
    until(lambda: open_descriptors() <= before, "their descriptors are closed")


def test_a_greeted_peer_whose_last_bytes_come_with_a_reset_is_let_go(broker: BrokerSetup, listener: str) -> None:
    """The same later in the conversation: the reader was called for the bytes, and never for the reset."""
    _, greeting, part = LISTENERS[listener]
    for place in broker.places[0].values():
        raws = [Raw(place) for _ in range(5)]
        for raw in raws:
            raw.say(greeting)
        until(lambda: connections(broker) == 5, "all are connected")
        if greeting:
            until(lambda: all(peer.is_open for peer in list(broker.runner.connections.peers)), "all have greeted")

        def part_and_reset(raws: list[Raw] = raws) -> None:
            for raw in raws:
                raw.say(part)
                raw.reset()

        broker.run(part_and_reset)  # on the loop's own thread: it cannot read the one without the other
        until(lambda: not connections(broker), "all have been let go")


def test_all_that_came_before_a_reset_is_read(setup: Setup, free_path: Path) -> None:
    """uvloop's only call for a connection that was reset reads 64 KiB; what had come behind was never read."""
    responder = Asker(setup.runner)
    where = setup.open(responder, UnixAddress(str(free_path)), carrier=lambda: Sp("REP", ipc=True))
    raw = Raw(where)
    raw.say(SP_GREETING)
    until(lambda: responder.present, "it has greeted")
    bodies = [bytes([number]) * 16_000 for number in range(9)]
    messages = b"".join(frame for body in bodies for frame in Sp("REQ", ipc=True).encode([b"\x80\0\0\0", body]))

    def say_and_reset() -> None:
        raw.say(messages)
        raw.socket.close()  # our greeting has not been read, and so this is a reset

    setup.run(say_and_reset)
    assert [responder.next()[1] for _ in bodies] == bodies
    until(lambda: not setup.runner.connections.peers, "it has been let go")
