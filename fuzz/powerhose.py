"""Fuzz target: messages of Powerhose. The first piece is the id of a job; the others are frames for all readers."""

from __future__ import annotations

from dragoman.carriers.carrier import Frame, Message
from dragoman.carriers.malformed import Malformed
from dragoman.dialects.powerhose import codec
from dragoman.dialects.powerhose.messages import JOBRES, PING, REMOVE, SEPARATOR, Job, Ping, Wake
from fuzz.input import Input


def test_one_input(data: bytes) -> None:
    given = Input(data)
    id = given.piece()
    frames = given.frames()
    copy: Message = [bytearray(each) for each in frames]
    for message in (frames, copy):
        check_registration(message)
        check_order(message)
        if message:
            check_result(message[-1], id, has_ids=False)
            check_result(message[-1], id, has_ids=True)


def check_registration(message: Message) -> None:
    try:
        parsed = codec.read_registration(message)
    except Malformed:
        return
    if parsed.endpoint is None:
        assert message[1] == (PING if isinstance(parsed, Ping) else REMOVE)
    else:
        write = codec.write_ping if isinstance(parsed, Ping) else codec.write_remove
        assert write(parsed.endpoint) == message


def check_order(message: Message) -> None:
    try:
        parsed = codec.read_order(message)
    except Malformed:
        return
    if isinstance(parsed, Job):
        assert codec.write_job(parsed.id, parsed.data) == message
    else:
        assert isinstance(parsed, Wake)


def check_result(body: Frame, id: bytes, *, has_ids: bool) -> None:
    try:
        result, has_id = codec.read_result(body, id, has_ids)
    except Malformed:
        return
    assert has_id or not has_ids
    if not has_id:
        assert body == JOBRES + SEPARATOR + result
    else:
        assert body == codec.write_result(id, result)[1] or body == JOBRES + SEPARATOR + id
