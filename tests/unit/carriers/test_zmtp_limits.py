"""Limits of ZMTP messages, and memory that an unfinished one takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
from cut_streams import KIB, MIB, feed_all, pieces_of, reason_of
from zmtp_wire import CUTS, command, greeting, prop, ready, started, wire

from dragoman.carriers.carrier import TooLarge
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_limits import ZmtpLimits

# ---- limits

SMALL = ZmtpLimits(max_payload=1000, hard_cap=100_000, max_frames=8)


def test_64_frames_pass_and_65_do_not() -> None:
    """R48."""
    zmtp = started()
    assert zmtp.feed(wire([b""] * 64)) == [[b""] * 64]
    assert zmtp.feed(wire([b"x"] * 65)) == []
    assert reason_of(zmtp) == "too many frames"


def test_exactly_max_payload_passes() -> None:
    zmtp = started(SMALL)
    message = [b"", b"a" * 400, b"b" * 600]
    assert zmtp.feed(wire(message, message)) == [message, message]


@pytest.mark.parametrize("size", [1, 2, 100, 10_000])
def test_a_message_over_max_payload_is_skipped_and_traffic_goes_on(size: int) -> None:
    """R16: the frames that came before it went over are kept, to know whom to answer."""
    big = [b"", b"id", b"a" * 900, b"b" * 200, b"c", b"d" * 3000]
    stream = wire([b"", b"before"], big, [b"", b"after"], [b"e" * 1001], [b"f" * 1000])
    zmtp = started(SMALL)
    assert feed_all(zmtp, pieces_of(stream, size)) == [
        [b"", b"before"],
        TooLarge([b"", b"id", b"a" * 900], 4103),
        [b"", b"after"],
        TooLarge([], 1001),
        [b"f" * 1000],
    ]
    assert zmtp.failure is None


@pytest.mark.parametrize("cut", CUTS)
def test_a_large_frame_before_the_one_that_went_over_is_let_go(cut: str) -> None:
    """R16: frames after it are let go, too, so that those that are left stand where they stood."""
    stream = wire([b"", b"id", b"x" * 100_000, b"small", b"y" * 200_000], [b"next"])
    zmtp = started(ZmtpLimits(max_payload=250_000))
    assert CUTS[cut](zmtp, stream) == [TooLarge([b"", b"id"], 300_007), [b"next"]]


def test_too_large_is_handed_up_with_the_last_byte_and_leaves_nothing_behind() -> None:
    """R16."""
    zmtp = started(SMALL)
    assert zmtp.feed(wire([b"a", b"x" * 1001])) == [TooLarge([b"a"], 1002)]
    zmtp.feed(command(b"PING", b"\0\0"))
    assert zmtp.outgoing == [command(b"PONG")]
    assert zmtp.feed(wire([b"y" * 125] * 8)) == [[b"y" * 125] * 8]


def test_a_claim_over_max_payload_opens_no_gap() -> None:
    zmtp = started(ZmtpLimits(max_payload=100_000))
    zmtp.feed(b"\x02" + (200_000).to_bytes(8, "big") + b"x" * 70_000)
    assert zmtp.gap is None
    assert zmtp.failure is None


def test_frames_are_counted_in_a_skipped_message_too() -> None:
    """R48."""
    zmtp = started(SMALL)
    assert feed_all(zmtp, pieces_of(wire([b"x" * 1001] * 9), 100)) == []
    assert reason_of(zmtp) == "too many frames"


@pytest.mark.parametrize("size", [1, 30, 5000])
def test_a_heartbeat_inside_a_message_is_answered_and_the_message_goes_on(size: int) -> None:
    """libzmq 4.3.5 sends PING and PONG after a large frame, be it the last or not; refusing them cut workers off."""
    zmtp = started(SMALL)
    ping, pong = command(b"PING", b"\0\0c"), command(b"PONG")
    stream = (
        b"\x01\x01a" + ping + b"\x00\x01b" + b"\x03" + (1001).to_bytes(8, "big") + bytes(1001) + pong + b"\x00\x01c"
    )
    assert feed_all(zmtp, pieces_of(stream, size)) == [[b"a", b"b"], TooLarge([], 1002)]
    assert zmtp.outgoing == [command(b"PONG", b"c")]


def test_the_sum_of_a_skipped_message_is_held_against_the_hard_cap() -> None:
    """R16, R48."""
    zmtp = started(SMALL)
    assert feed_all(zmtp, pieces_of(wire([b"x" * 40_000] * 3), 5000)) == []
    assert reason_of(zmtp) == "over hard cap"


def test_limits_of_handshake_identity_and_commands_can_be_set() -> None:
    limits = ZmtpLimits(max_identity=3, max_metadata=60, max_handshake=200, max_command=20)
    reasons = []
    for stream in (
        ready(identity=b"four"),
        command(b"READY", prop(b"X", bytes(70))),
        b"\x04\xff",
        ready() + command(b"JOIN", bytes(30)),
    ):
        zmtp = Zmtp("ROUTER", limits=limits)
        zmtp.feed(greeting() + stream)
        reasons.append(reason_of(zmtp))
    assert reasons == ["identity too long", "bad metadata", "bad handshake", "command too large"]


def test_a_command_of_exactly_max_command_passes() -> None:
    zmtp = started(ZmtpLimits(max_command=20))
    assert zmtp.feed(command(b"JOIN", bytes(15)) + wire([b"hi"])) == [[b"hi"]]


# ---- memory


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
def test_a_claim_alone_costs_64_kib() -> None:
    """R48: bytearray(n) touches n bytes, so a buffer must follow what came and not what was claimed."""
    zmtp = started()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    zmtp.feed(b"\x02" + (60 * MIB).to_bytes(8, "big") + b"some")
    assert tracemalloc.get_traced_memory()[1] - before < 70 * KIB


@pytest.mark.usefixtures("traced")
def test_a_buffer_grows_with_what_really_came() -> None:
    zmtp = started()
    piece = bytes(64 * KIB)
    before = tracemalloc.get_traced_memory()[0]
    zmtp.feed(b"\x02" + (60 * MIB).to_bytes(8, "big"))
    for count in range(1, 100):
        zmtp.feed(piece)
        held = tracemalloc.get_traced_memory()[0] - before
        assert held <= max(MIB, 4 * count * len(piece)) + 64 * KIB


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("frame_size", [0, 1, 1000, 60_000, 100_000, 900_000, 2_000_000])
def test_an_unfinished_message_holds_no_more_than_the_limit_and_64_kib(frame_size: int) -> None:
    """R48, I18: libzmq held 610 MiB for 30 MB of one-byte parts."""
    frame = b"\x03" + frame_size.to_bytes(8, "big") + bytes(frame_size)
    zmtp = started(ZmtpLimits(max_payload=MIB))
    stream = frame * 63 if frame_size < MIB else frame * 4
    pieces = list(pieces_of(stream, 10_000))
    before = tracemalloc.get_traced_memory()[0]
    most = 0
    for piece in pieces:
        assert zmtp.feed(piece) == []
        most = max(most, tracemalloc.get_traced_memory()[0] - before)
    assert zmtp.failure is None
    assert most <= MIB + 64 * KIB
