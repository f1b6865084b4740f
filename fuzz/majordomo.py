"""Fuzz target: messages of Majordomo. The readers of all sides and editions get the same frames."""

from __future__ import annotations

from dragoman.carriers.carrier import Message
from dragoman.carriers.malformed import Malformed
from dragoman.dialects.majordomo import codec
from dragoman.dialects.majordomo.editions import WIRES, EditionFrames
from dragoman.dialects.majordomo.messages import Disconnect, Heartbeat, Ready, WorkerReply, WorkerRequest
from fuzz.input import Input


def test_one_input(data: bytes) -> None:
    frames = Input(data).frames()
    for wire in WIRES.values():
        for check in (check_worker, check_client, check_broker, check_reply):
            try:
                check(frames, wire)
            except Malformed as error:
                assert len(error.detail) < 200
    try:
        wire, is_worker = codec.recognise(frames)
    except Malformed as error:
        assert error.reason == "unknown header"
        return
    head = wire.worker_head if is_worker else wire.client_head
    assert tuple(frames[: len(head)]) == head


def check_worker(frames: Message, wire: EditionFrames) -> None:
    parsed = codec.read_worker(frames, wire)
    assert type(codec.read_worker([bytearray(each) for each in frames], wire)) is type(parsed)
    match parsed:
        case Ready():
            assert frames == codec.write_ready(wire, parsed.service)
        case Heartbeat():
            assert frames == codec.write_heartbeat(wire)
        case Disconnect():
            assert frames == codec.write_disconnect(wire)
        case WorkerReply() if parsed.is_final:
            written = codec.write_worker_reply(wire, parsed.client, parsed.body)
            assert frames in (written, written[:-1])  # no body is an empty one


def check_client(frames: Message, wire: EditionFrames) -> None:
    parsed = codec.read_client(frames, wire)
    written = codec.write_client_request(wire, parsed.service, parsed.body)
    assert frames in (written, written[:-1])


def check_broker(frames: Message, wire: EditionFrames) -> None:
    parsed = codec.read_broker(frames, wire)
    if isinstance(parsed, WorkerRequest):
        written = codec.write_worker_request(wire, parsed.client, parsed.body)
        assert frames in (written, written[:-1])


def check_reply(frames: Message, wire: EditionFrames) -> None:
    parsed = codec.read_reply(frames, wire)
    write = codec.write_client_reply if parsed.is_final else codec.write_client_part
    written = write(wire, parsed.service or "", parsed.body)
    assert frames in (written, written[:-1])
