"""Fuzz target: messages of PingPong. The readers of both sides and editions get the same frames."""

from __future__ import annotations

from dragoman.carriers.carrier import Message
from dragoman.carriers.malformed import Malformed
from dragoman.dialects.pingpong import codec
from dragoman.dialects.pingpong.editions import Edition
from dragoman.dialects.pingpong.messages import Job, Ping, Result
from fuzz.input import Input


def test_one_input(data: bytes) -> None:
    frames = Input(data).frames()
    for edition in Edition:
        check_worker(frames, edition)
        check_broker(frames, edition)


def check_worker(frames: Message, edition: Edition) -> None:
    try:
        parsed = codec.read_worker(frames, edition)
    except Malformed as error:
        assert len(error.detail) < 200
        return
    again = codec.read_worker([bytearray(each) for each in frames], edition)
    if isinstance(parsed, Result):
        assert isinstance(again, Result)
        assert (again.payload, again.token) == (parsed.payload, parsed.token)
        assert (parsed.token is None) == (edition is Edition.PLAIN)
        assert codec.write_result(parsed.payload, parsed.token) == frames
        return
    assert again == parsed
    if isinstance(parsed, Ping):
        assert len(parsed.counts) <= codec.MAX_COUNTS
        assert all(len(each) <= codec.MAX_COUNT_BYTES for each in parsed.counts)


def check_broker(frames: Message, edition: Edition) -> None:
    try:
        parsed = codec.read_broker(frames, edition)
    except Malformed as error:
        assert len(error.detail) < 200
        return
    assert codec.read_broker([bytearray(each) for each in frames], edition) == parsed
    if isinstance(parsed, Job):
        token = None if parsed.token is None else bytes(parsed.token)
        assert codec.read_broker(codec.write_job(parsed.payload, token), edition) == parsed
