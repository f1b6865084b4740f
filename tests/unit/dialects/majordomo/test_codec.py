"""Majordomo messages, byte for byte, in every edition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dragoman.carriers.malformed import Malformed
from dragoman.carriers.zmtp import Zmtp, encode
from dragoman.dialects.majordomo import codec
from dragoman.dialects.majordomo.editions import DELIMITED, FIELD, RFC7, RFC18, WIRES, Edition, EditionFrames
from dragoman.dialects.majordomo.messages import (
    ClientReply,
    ClientRequest,
    Disconnect,
    Heartbeat,
    Ready,
    WorkerReply,
    WorkerRequest,
)
from dragoman.dialects.majordomo.multiframe import MultiframeBody

TOKEN = bytes(range(16))
ALL = list(WIRES.values())
every = pytest.mark.parametrize("wire", ALL, ids=lambda wire: wire.edition.value)


def refusal(read: Callable[..., object], *args: object) -> str:
    with pytest.raises(Malformed) as caught:
        read(*args)
    assert caught.value.detail
    return caught.value.reason


def fields(word: Any) -> list[object]:
    return [type(word), *(getattr(word, name) for name in word.__slots__)]


def head(wire: EditionFrames) -> list[bytes]:
    """Return the first frames of a worker's message, written by hand."""
    return {RFC7: [b"", b"MDPW01"], RFC18: [b"MDPW02"], DELIMITED: [b"", b"MDPW02"], FIELD: [b"", b"MDPW02"]}[wire]


# -------------------------------------------------------------------- every row of the page


WORKER_ROWS = [
    (RFC7, [b"", b"MDPW01", b"\x01", b"echo"], Ready("echo")),
    (RFC7, [b"", b"MDPW01", b"\x03", TOKEN, b"", b"x"], WorkerReply(TOKEN, b"x", True)),
    (RFC7, [b"", b"MDPW01", b"\x04"], Heartbeat()),
    (RFC7, [b"", b"MDPW01", b"\x05"], Disconnect()),
    (RFC18, [b"MDPW02", b"\x01", b"echo"], Ready("echo")),
    (RFC18, [b"MDPW02", b"\x03", TOKEN, b"", b"x"], WorkerReply(TOKEN, b"x", False)),
    (RFC18, [b"MDPW02", b"\x04", TOKEN, b"", b"x"], WorkerReply(TOKEN, b"x", True)),
    (RFC18, [b"MDPW02", b"\x05"], Heartbeat()),
    (RFC18, [b"MDPW02", b"\x06"], Disconnect()),
    (FIELD, [b"", b"MDPW02", b"\x01", "größe".encode()], Ready("größe")),
    (FIELD, [b"", b"MDPW02", b"\x03", TOKEN, b"", b"x"], WorkerReply(TOKEN, b"x", False)),
    (FIELD, [b"", b"MDPW02", b"\x04", TOKEN, b"", b"x"], WorkerReply(TOKEN, b"x", True)),
    (DELIMITED, [b"", b"MDPW02", b"\x05"], Heartbeat()),
    (DELIMITED, [b"", b"MDPW02", b"\x06"], Disconnect()),
]


@pytest.mark.parametrize(("wire", "frames", "word"), WORKER_ROWS)
@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_what_a_worker_says_is_read(wire: EditionFrames, frames: list[bytes], word: object, kind: type) -> None:
    assert fields(codec.read_worker([kind(frame) for frame in frames], wire)) == fields(word)
    known, is_worker = codec.recognise(frames)
    assert is_worker
    assert known.worker_head == wire.worker_head


CLIENT_ROWS = [
    (RFC7, [b"", b"MDPC01", b"echo", b"x"]),
    (RFC18, [b"MDPC02", b"\x01", b"echo", b"x"]),
    (DELIMITED, [b"", b"MDPC02", b"\x01", b"echo", b"x"]),
    (FIELD, [b"", b"MDPC02", b"\x02", b"echo", b"x"]),
]


@pytest.mark.parametrize(("wire", "frames"), CLIENT_ROWS)
def test_what_a_client_says_is_read_and_written(wire: EditionFrames, frames: list[bytes]) -> None:
    assert fields(codec.read_client(frames, wire)) == fields(ClientRequest("echo", b"x"))
    assert codec.write_client_request(wire, "echo", b"x") == frames
    assert codec.recognise(frames) == (wire, False)


@pytest.mark.parametrize(
    ("wire", "final", "part"),
    [
        (RFC7, [b"", b"MDPC01", b"echo", b"x"], None),
        (RFC18, [b"MDPC02", b"\x03", b"echo", b"x"], [b"MDPC02", b"\x02", b"echo", b"x"]),
        (DELIMITED, [b"", b"MDPC02", b"\x03", b"echo", b"x"], [b"", b"MDPC02", b"\x02", b"echo", b"x"]),
        (FIELD, [b"", b"MDPC02", b"\x04", b"x"], [b"", b"MDPC02", b"\x03", b"x"]),
    ],
)
def test_what_a_client_is_told_is_written_and_read(
    wire: EditionFrames, final: list[bytes], part: list[bytes] | None
) -> None:
    service = None if wire is FIELD else "echo"
    assert codec.write_client_reply(wire, "echo", b"x") == final
    assert codec.read_reply(final, wire) == ClientReply(service, b"x", True)
    if part is not None:
        assert codec.write_client_part(wire, "echo", b"x") == part
        assert codec.read_reply(part, wire) == ClientReply(service, b"x", False)


@every
def test_what_a_worker_is_told_is_written_and_read(wire: EditionFrames) -> None:
    heartbeat, disconnect = (b"\x04", b"\x05") if wire is RFC7 else (b"\x05", b"\x06")
    request = [*head(wire), b"\x02", TOKEN, b"", b"job"]
    assert codec.write_worker_request(wire, TOKEN, b"job") == request
    assert codec.read_broker(request, wire) == WorkerRequest(TOKEN, b"job")
    assert codec.write_heartbeat(wire) == [*head(wire), heartbeat]
    assert codec.read_broker([*head(wire), heartbeat], wire) == Heartbeat()
    assert codec.write_disconnect(wire) == [*head(wire), disconnect]
    assert codec.read_broker([*head(wire), disconnect], wire) == Disconnect()


@every
def test_what_our_worker_writes_is_what_a_worker_says(wire: EditionFrames) -> None:
    assert codec.write_ready(wire, "echo") == [*head(wire), b"\x01", b"echo"]
    assert codec.write_worker_reply(wire, TOKEN, b"x") == [
        *head(wire),
        b"\x03" if wire is RFC7 else b"\x04",
        TOKEN,
        b"",
        b"x",
    ]


@every
def test_every_message_is_the_same_whole_and_byte_by_byte(wire: EditionFrames) -> None:
    """I18, through the carrier."""
    written = [
        codec.write_ready(wire, "echo"),
        codec.write_worker_reply(wire, TOKEN, MultiframeBody.of([b"", b"a" * 300, b"b"])),
        codec.write_heartbeat(wire),
        codec.write_disconnect(wire),
    ]
    carrier, other = Zmtp("ROUTER"), Zmtp("DEALER", dials=True)
    greeting = b"".join(other.outgoing)
    carrier.feed(greeting)
    other.feed(b"".join(carrier.outgoing))
    carrier.feed(b"".join(other.outgoing).removeprefix(greeting))
    assert carrier.ready
    heard = []
    for byte in b"".join(b"".join(encode(frames)) for frames in written):
        heard += carrier.feed(bytes((byte,)))
    words = [codec.read_worker(message, wire) for message in heard]  # type: ignore[arg-type]
    assert [type(word) for word in words] == [Ready, WorkerReply, Heartbeat, Disconnect]
    assert isinstance(words[1], WorkerReply)
    assert words[1].body == b"a" * 300 + b"b"


# -------------------------------------------------------------------- bodies


@pytest.mark.parametrize("frames", [[b"one", b"two"], [b"", b""], [b"", b"x"], [b"x", b""], [b"a"] * 59])
@every
def test_frames_of_a_body_are_kept_and_are_bytes_in_a_row_to_everybody_else(
    wire: EditionFrames, frames: list[bytes]
) -> None:
    reply = codec.read_worker([*head(wire), wire.final, TOKEN, b"", *frames], wire)
    assert isinstance(reply, WorkerReply)
    assert reply.body == b"".join(frames)
    assert isinstance(reply.body, bytes)
    assert codec.write_worker_request(wire, TOKEN, reply.body)[-len(frames) :] == frames
    assert codec.write_client_reply(wire, "echo", reply.body)[-len(frames) :] == frames


@every
def test_no_body_is_an_empty_one(wire: EditionFrames) -> None:
    reply = codec.read_worker([*head(wire), wire.final, TOKEN, b""], wire)
    assert isinstance(reply, WorkerReply)
    assert reply.body == b""
    request = codec.read_client(codec.write_client_request(wire, "echo", b"")[:-1], wire)
    assert request.body == b""


@pytest.mark.parametrize(("wire", "frames"), CLIENT_ROWS)
def test_a_body_has_59_frames_at_most(wire: EditionFrames, frames: list[bytes]) -> None:
    assert refusal(codec.read_client, [*frames, *[b"x"] * 59], wire) == "too many frames"
    assert refusal(codec.read_worker, [*head(wire), wire.final, TOKEN, b"", *[b"x"] * 60], wire) == "too many frames"


# -------------------------------------------------------------------- rubbish


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        [b"", b""],
        [b"x"],
        [b"MDPC01", b"echo", b"x"],  # 0.1 without its empty frame
        [b"MDPW01", b"\x01", b"echo"],
        [b"", b"", b"MDPW01", b"\x01", b"echo"],
        [b"", b"MDPX01", b"echo"],
        [b"", b"MDPC03", b"echo"],
        [b"", b"mdpc01", b"echo"],
        [b"", b"MDPC0", b"echo"],
        [b"", b"MDPC010", b"echo"],
        [b"\0", b"MDPC01", b"echo"],
        [b"x" * 100_000],
        [b"", b"READY"],
    ],
)
def test_what_begins_as_no_edition_is_unknown(frames: list[bytes]) -> None:
    assert refusal(codec.recognise, frames) == "unknown header"


@every
def test_another_header_than_the_first_is_malformed(wire: EditionFrames) -> None:
    for other in ALL:
        if other.worker_head != wire.worker_head:
            assert refusal(codec.read_worker, codec.write_heartbeat(other), wire) == "wrong header"
        if other.client_head != wire.client_head:
            assert refusal(codec.read_client, codec.write_client_request(other, "echo", b""), wire) == "wrong header"
    assert refusal(codec.read_worker, codec.write_client_request(wire, "echo", b""), wire) == "wrong header"
    assert refusal(codec.read_client, codec.write_heartbeat(wire), wire) == "wrong header"
    assert refusal(codec.read_worker, [], wire) == "wrong header"
    assert refusal(codec.read_client, [], wire) == "wrong header"


@every
@pytest.mark.parametrize("command", [b"", b"\x00", b"\x02", b"\x07", b"\xff", b"\x01\x00", b"1", b"READY", b"x" * 1000])
def test_an_unknown_command_of_a_worker_is_malformed(wire: EditionFrames, command: bytes) -> None:
    assert refusal(codec.read_worker, [*head(wire), command], wire) == "unknown command"


def test_0_1_knows_no_sixth_command() -> None:
    assert refusal(codec.read_worker, [b"", b"MDPW01", b"\x06"], RFC7) == "unknown command"


@pytest.mark.parametrize("wire", [RFC18, DELIMITED, FIELD], ids=lambda wire: wire.edition.value)
@pytest.mark.parametrize("command", [b"", b"\x00", b"\x03", b"\x04", b"\x05", b"\x01\x00"])
def test_an_unknown_command_of_a_client_is_malformed(wire: EditionFrames, command: bytes) -> None:
    assert refusal(codec.read_client, [*wire.client_head, command, b"echo", b"x"], wire) == "unknown command"


@every
def test_a_reply_may_lack_the_empty_frame(wire: EditionFrames) -> None:
    """The Guide's worker in PHP puts the client's frame in front of the body, and no empty frame between them."""
    for sent, body in (([], b""), ([b""], b""), ([b"x"], b"x"), ([b"", b"x"], b"x"), ([b"x", b"y"], b"xy")):
        reply = codec.read_worker([*head(wire), wire.final, TOKEN, *sent], wire)
        assert isinstance(reply, WorkerReply)
        assert (reply.client, reply.body, reply.is_final) == (TOKEN, body, True)


@every
def test_missing_and_surplus_frames_are_malformed(wire: EditionFrames) -> None:
    assert refusal(codec.read_worker, head(wire), wire) == "too few frames"
    for rest in ([wire.ready], [wire.ready, b"a", b"b"], [wire.heartbeat, b""], [wire.disconnect, b"x"]):
        assert refusal(codec.read_worker, [*head(wire), *rest], wire) == "unexpected frames"
    assert refusal(codec.read_worker, [*head(wire), wire.final], wire) == "no envelope"
    no_service = codec.write_client_request(wire, "", b"")[:-2]
    assert refusal(codec.read_client, no_service, wire) == "too few frames"


@pytest.mark.parametrize("name", [b"", b"a" * 129, b"\xff", b"tab\t", b"\xc3", b"nul\0", b"x" * 100_000])
@every
def test_a_service_is_1_to_128_bytes_of_text(wire: EditionFrames, name: bytes) -> None:
    assert refusal(codec.read_worker, [*head(wire), b"\x01", name], wire) == "bad service name"
    request = [*codec.write_client_request(wire, "", b"")[:-2], name, b"body"]
    assert refusal(codec.read_client, request, wire) == "bad service name"


@every
def test_a_worker_cannot_offer_what_is_the_brokers_own(wire: EditionFrames) -> None:
    assert refusal(codec.read_worker, [*head(wire), b"\x01", b"mmi.service"], wire) == "reserved service"


def test_every_edition_has_a_wire() -> None:
    assert set(WIRES) == set(Edition)
