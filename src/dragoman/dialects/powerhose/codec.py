"""Codec of Powerhose: frames to messages and back, without state. Readers raise Malformed."""

from __future__ import annotations

from typing import Final

from dragoman.carriers.carrier import Frame, Message
from dragoman.carriers.malformed import Malformed
from dragoman.dialects.powerhose.messages import (
    JOB,
    JOBRES,
    PING,
    REMOVE,
    SEPARATOR,
    WAKE,
    Job,
    Order,
    Ping,
    Registration,
    Remove,
    Wake,
)
from dragoman.dialects.single_frame_calls import no_envelope

MAX_REGISTRATION: Final = 4096  # bytes: message type and endpoint


def read_registration(message: Message) -> Registration:
    """Parse a worker's message to the master's own endpoint."""
    body = body_of(message)
    if len(body) > MAX_REGISTRATION:
        raise Malformed("too long", f"{len(body)} bytes; a registration has at most {MAX_REGISTRATION}")
    parsed, separator, rest = bytes(body).partition(SEPARATOR)
    if parsed not in (PING, REMOVE):
        raise Malformed("unknown word", f"a message type of {len(parsed)} bytes; PING and REMOVE are allowed")
    endpoint = _text(rest) if separator else None
    return Ping(endpoint) if parsed == PING else Remove(endpoint)


def read_result(body: Frame, id: bytes, has_ids: bool) -> tuple[Frame, bool]:
    """Return the result in a worker's reply to JOB, and whether it has the job's id.

    Workers in some languages leave the id out, and results may contain the separator. So the first field is an id only
    if it is the job's. If it is not, and this worker has returned ids before, the reply belongs to another job (R56).
    """
    begin = JOBRES + SEPARATOR
    if not body.startswith(begin):
        raise Malformed("garbage for JOBRES", f"{len(body)} bytes that do not begin with JOBRES")
    rest = body[len(begin) :]
    if rest.startswith(id + SEPARATOR):
        return rest[len(id) + len(SEPARATOR) :], True
    if rest == id:
        return b"", True
    if has_ids:
        raise Malformed("foreign job id", "JOBRES has the id of another job")
    return rest, False


def read_order(message: Message) -> Order:
    """Parse a master's message to a worker."""
    body = body_of(message)
    if body == WAKE:
        return Wake()
    if body.startswith(JOB + SEPARATOR):
        id, separator, data = body[len(JOB) + len(SEPARATOR) :].partition(SEPARATOR)
        if separator:
            return Job(bytes(id), data)
    raise Malformed("unknown word", f"{len(body)} bytes that are neither WAKE nor JOB")


def write_ping(endpoint: str) -> list[Frame]:
    return [b"", PING + SEPARATOR + endpoint.encode()]


def write_remove(endpoint: str) -> list[Frame]:
    return [b"", REMOVE + SEPARATOR + endpoint.encode()]


def write_job(id: bytes, data: Frame) -> list[Frame]:
    return [b"", b"".join((JOB, SEPARATOR, id, SEPARATOR, data))]


def write_result(id: bytes, result: Frame) -> list[Frame]:
    return [b"", b"".join((JOBRES, SEPARATOR, id, SEPARATOR, result))]


def body_of(message: Message) -> Frame:
    if len(message) != 2 or message[0]:
        if len(message) > 2:
            raise Malformed("unexpected frames", f"{len(message)} frames; an empty one and a body are required")
        raise no_envelope(message)
    return message[1]


def _text(endpoint: bytes) -> str:
    try:
        return endpoint.decode()
    except UnicodeDecodeError:
        raise Malformed("bad endpoint", "the endpoint is not UTF-8") from None
