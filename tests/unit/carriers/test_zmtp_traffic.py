"""ZMTP messages and commands, however the bytes are cut, and their encoding."""

from __future__ import annotations

import random

import pytest
from cut_streams import KIB, MIB, feed_all, pieces_of, read_into_gap, reason_of
from zmtp_wire import CUTS, command, greeting, ready, started, talk, wire

from dragoman.carriers.carrier import Frame
from dragoman.carriers.zmtp import Zmtp, encode

# ---- traffic

SIZES = [0, 1, 100, 255, 256, 65535, 65536, 65537, MIB]
VARIED = [
    *([bytes([size % 251]) * size] for size in SIZES),
    [b"", b"a" * 100],
    [b"", b"b" * 300, b"", b"c" * 70_000, b""],
    [bytes([n]) * n for n in range(40)],
    [b"tail"],
]


@pytest.mark.parametrize("cut", CUTS)
def test_messages_of_all_sizes_come_out_alike_however_they_are_cut(cut: str) -> None:
    """I18."""
    zmtp = started()
    assert CUTS[cut](zmtp, wire(*VARIED)) == VARIED
    assert zmtp.failure is None
    assert zmtp.gap is None


def test_messages_fed_byte_by_byte_come_out_alike() -> None:
    """I18. A frame of 60 KiB and a large one are among them, so work that grows with the square would be felt here."""
    messages: list[list[bytes]] = [[b"", b"x" * 100], [b"a", b"", b"y" * 60 * KIB], [b"z" * 70_000, b"end"]]
    zmtp = started()
    assert feed_all(zmtp, pieces_of(wire(*messages), 1)) == messages


@pytest.mark.parametrize("tail", [1, 2, 3, 50])
def test_a_tail_waits_for_its_rest(tail: int) -> None:
    first, second = wire([b"", b"first"]), wire([b"", b"s" * 100])
    zmtp = started()
    assert zmtp.feed(first + second[:tail]) == [[b"", b"first"]]
    assert zmtp.feed(b"") == []
    assert zmtp.feed(second[tail:]) == [[b"", b"s" * 100]]


def test_messages_that_came_with_the_handshake_are_handed_up() -> None:
    zmtp = Zmtp("ROUTER")
    assert zmtp.feed(greeting() + ready() + wire([b"", b"one"], [b"two"])) == [[b"", b"one"], [b"two"]]


def test_a_short_body_in_a_long_frame_is_legal() -> None:
    zmtp = started()
    assert zmtp.feed(b"\x03" + bytes(8) + b"\x02" + (2).to_bytes(8, "big") + b"hi") == [[b"", b"hi"]]


def test_a_message_list_is_not_touched_after_it_was_handed_up() -> None:
    zmtp = started()
    (first,) = zmtp.feed(wire([b"", b"one"]))
    zmtp.feed(wire([b"", b"two"]))
    assert first == [b"", b"one"]


# ---- large frames


def test_a_gap_opens_for_a_large_frame_and_closes_when_it_is_full() -> None:
    stream = wire([b"", b"x" * 100_000])
    zmtp = started()
    zmtp.feed(stream[:50_000])
    assert zmtp.gap is not None
    rest = stream[50_000:]
    assert len(zmtp.gap) == len(rest)
    zmtp.gap[:] = rest
    assert zmtp.fill(len(rest)) == [[b"", b"x" * 100_000]]
    assert zmtp.gap is None


def test_feeding_while_a_gap_is_open_goes_into_the_gap_and_beyond() -> None:
    stream = wire([b"x" * 100_000], [b"next"])
    zmtp = started()
    zmtp.feed(stream[:50_000])
    assert zmtp.feed(stream[50_000:]) == [[b"x" * 100_000], [b"next"]]


def test_a_large_frame_that_is_not_the_last_waits_for_the_others() -> None:
    stream = wire([b"x" * 100_000, b"y" * 100_000, b"z"])
    assert read_into_gap(started(), stream, 30_000) == [[b"x" * 100_000, b"y" * 100_000, b"z"]]


def test_a_mebibyte_whose_beginning_came_in_one_read_gets_its_buffer_at_once() -> None:
    zmtp = started()
    stream = wire([b"x" * MIB])
    zmtp.feed(stream[: 64 * KIB])
    assert zmtp.gap is not None
    assert len(zmtp.gap) == len(stream) - 64 * KIB


def test_a_view_that_is_still_held_does_not_hinder_growing() -> None:
    """uvloop releases the buffer only after `buffer_updated` returned; resizing it would raise BufferError."""
    body = random.Random(1).randbytes(6 * MIB)
    stream = wire([body])
    zmtp = started()
    views = []
    pos = 100
    messages = zmtp.feed(stream[:pos])
    while zmtp.gap is not None:
        view = zmtp.gap
        views.append(memoryview(view))
        count = min(len(view), 64 * KIB)
        view[:count] = stream[pos : pos + count]
        pos += count
        messages += zmtp.fill(count)
    assert messages == [[body]]


def test_filling_more_than_the_gap_is_our_mistake() -> None:
    zmtp = started()
    assert zmtp.fill(10) == []
    zmtp.feed(b"\x02" + (100_000).to_bytes(8, "big"))
    with pytest.raises(ValueError, match="gap"):
        zmtp.fill(100_001)


# ---- commands


def test_a_ping_between_messages_is_answered_with_its_context() -> None:
    zmtp = started()
    stream = wire([b"", b"one"]) + command(b"PING", b"\x00\x1econtext") + wire([b"two"])
    assert zmtp.feed(stream) == [[b"", b"one"], [b"two"]]
    assert zmtp.outgoing == [command(b"PONG", b"context")]


def test_our_ping_is_answered_by_our_pong_and_the_pong_is_not_handed_up() -> None:
    left, right = Zmtp("DEALER", dials=True), Zmtp("ROUTER")
    talk(left, right)
    assert left.ping(30, b"0123456789abcdef") == command(b"PING", b"\x00\x1e0123456789abcdef")
    assert right.feed(left.ping(30, b"0123456789abcdef")) == []
    assert right.outgoing == [command(b"PONG", b"0123456789abcdef")]
    assert left.feed(right.outgoing[0]) == []
    assert (left.failure, left.outgoing) == (None, [])


def test_unknown_commands_are_ignored_in_short_and_long_frames() -> None:
    zmtp = started()
    stream = command(b"SUBSCRIBE", b"x") + command(b"JOIN", bytes(1000)) + ready() + wire([b"hi"])
    assert feed_all(zmtp, pieces_of(stream, 10)) == [[b"hi"]]
    assert zmtp.outgoing == []


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (b"\x08", "bad flags"),
        (b"\x80\x00", "bad flags"),
        (b"\xff", "bad flags"),
        (b"\x05\x01x", "bad flags"),
        (b"\x07", "bad flags"),
        (command(b"PING", b"\0\0" + bytes(17)), "bad ping"),
        (command(b"PING", b"\0"), "bad ping"),
        (b"\x04\x00", "bad command"),
        (b"\x04\x02\x09x", "bad command"),
        (b"\x06" + (64 * KIB + 1).to_bytes(8, "big"), "command too large"),
        (command(b"ERROR", b"\x03bye"), "peer error"),
        (b"\x02\x80" + bytes(7), "over hard cap"),
        (b"\x02" + b"\xff" * 8, "over hard cap"),
        (b"\x02" + (1024 * MIB + 1).to_bytes(8, "big"), "over hard cap"),
        (b"\x01\x00" * 64, "too many frames"),
    ],
)
def test_what_breaks_the_rules_fails_however_it_is_cut_and_after_what_was_good(stream: bytes, reason: str) -> None:
    """R48, I18."""
    stream = wire([b"", b"good"]) + stream
    whole, bytewise = started(), started()
    assert whole.feed(stream + wire([b"never"])) == [[b"", b"good"]]
    assert feed_all(bytewise, pieces_of(stream, 1)) == [[b"", b"good"]]
    assert reason_of(whole) == reason_of(bytewise) == reason
    assert whole.outgoing == bytewise.outgoing == []


def test_nothing_is_heard_after_a_failure() -> None:
    zmtp = started()
    zmtp.feed(b"\x01\x03abc\xff")
    failure = zmtp.failure
    assert zmtp.feed(wire([b"", b"hello"])) == []
    assert zmtp.feed(command(b"PING", b"\0\0")) == []
    assert zmtp.feed(b"\x04\x00") == []
    assert zmtp.fill(5) == []
    assert zmtp.failure is failure
    assert zmtp.outgoing == []


# ---- encoding


@pytest.mark.parametrize(
    ("frames", "buffers"),
    [
        ([b""], [b"\x00\x00"]),
        ([b"", b"hi"], [b"\x01\x00\x00\x02hi"]),
        ([b"x" * 255], [b"\x00\xff" + b"x" * 255]),
        ([b"x" * 256, b""], [b"\x03" + (256).to_bytes(8, "big") + b"x" * 256 + b"\x00\x00"]),
        ([b"a", bytearray(b"b")], [b"\x01\x01a\x00\x01b"]),
        ([b"a", b"x" * 300], [b"\x01\x01a\x02" + (300).to_bytes(8, "big") + b"x" * 300]),
    ],
)
def test_small_frames_are_joined(frames: list[Frame], buffers: list[bytes]) -> None:
    encoded = encode(frames)
    assert encoded == buffers
    assert type(encoded[0]) is bytes


def test_large_frames_are_passed_on_uncopied() -> None:
    first, second = b"f" * 16 * KIB, bytearray(b"s" * MIB)
    encoded = encode([b"", first, b"m" * 300, second])
    assert encoded == [
        b"\x01\x00\x03" + (16 * KIB).to_bytes(8, "big"),
        first,
        b"\x03" + (300).to_bytes(8, "big") + b"m" * 300 + b"\x02" + MIB.to_bytes(8, "big"),
        second,
    ]
    assert encoded[1] is first
    assert encoded[3] is second


def test_what_follows_a_large_frame_is_written_after_it() -> None:
    assert encode([b"x" * 16 * KIB, b"", b"y"]) == [
        b"\x03" + (16 * KIB).to_bytes(8, "big"),
        b"x" * 16 * KIB,
        b"\x01\x00\x00\x01y",
    ]
