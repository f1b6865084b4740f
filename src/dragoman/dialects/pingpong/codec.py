"""Codec of PingPong: frames to messages and back, without state."""

from __future__ import annotations

from typing import Final

from dragoman.carriers.carrier import Frame, Message
from dragoman.carriers.malformed import Malformed
from dragoman.dialects.pingpong.editions import Edition
from dragoman.dialects.pingpong.messages import (
    DISCONNECT,
    EXIT,
    JOB_COMPLETE,
    PING,
    PONG,
    READY,
    BrokerMessage,
    Disconnect,
    Exit,
    Job,
    Ping,
    Pong,
    Ready,
    Result,
    WorkerMessage,
)
from dragoman.dialects.single_frame_calls import no_envelope

MAX_FRAMES: Final = 8
MAX_COUNTS: Final = 2
MAX_COUNT_BYTES: Final = 32
LONGEST_CONTROL: Final = len(JOB_COMPLETE)

_PING: Final = Ping()
_PONG: Final = Pong()
_EXIT: Final = Exit()

_WORKER_MESSAGES: Final[dict[bytes, WorkerMessage]] = {
    READY: Ready(),
    PING: _PING,
    PONG: _PONG,
    EXIT: _EXIT,
    DISCONNECT: Disconnect(),
}


def read_worker(message: Message, edition: Edition) -> WorkerMessage:
    """Parse a worker's message. Raises Malformed."""
    count = len(message)
    if count < 2 or message[0]:
        raise no_envelope(message)
    parsed = message[1]
    known = _WORKER_MESSAGES.get(bytes(parsed)) if len(parsed) <= LONGEST_CONTROL else None
    if count == 2:
        if known is not None:
            return known
        if edition is Edition.PLAIN:
            return Result(parsed)
    elif count > MAX_FRAMES:
        raise Malformed("too many frames", f"{count} frames; at most {MAX_FRAMES} are allowed")
    elif known is _PING:
        return Ping(tuple(frame for frame in message[2:][:MAX_COUNTS] if len(frame) <= MAX_COUNT_BYTES))
    elif edition is Edition.PACKAGE and parsed == JOB_COMPLETE and count == 5 and not message[3]:
        return Result(message[4], message[2])
    raise Malformed("unexpected frames", f"{count} frames that begin with {_shown(parsed)}")


def read_broker(message: Message, edition: Edition) -> BrokerMessage:
    """Parse a broker's message to a worker. Raises Malformed."""
    if len(message) < 2 or message[0]:
        raise no_envelope(message)
    parsed = message[1]
    if edition is Edition.PACKAGE and len(message) == 5:
        return Job(parsed, message[2])
    if parsed == PONG:
        return _PONG
    if parsed == EXIT and len(message) == 2:
        return _EXIT
    if edition is Edition.PLAIN and len(message) == 2:
        return Job(parsed)
    raise Malformed("unexpected frames", f"{len(message)} frames that begin with {_shown(parsed)}")


def write_job(payload: Frame, token: bytes | None) -> list[Frame]:
    if token is None:
        return [b"", payload]
    return [b"", payload, token, b"", b""]


def write_result(payload: Frame, token: Frame | None) -> list[Frame]:
    if token is None:
        return [b"", payload]
    return [b"", JOB_COMPLETE, token, b"", payload]


def _shown(parsed: Frame) -> str:
    """Describe a frame for an error: control words are shown, payloads are not."""
    start = bytes(parsed[: LONGEST_CONTROL + 1])
    if start in _WORKER_MESSAGES or start == JOB_COMPLETE:
        return start.decode()
    return f"{len(parsed)} bytes"
