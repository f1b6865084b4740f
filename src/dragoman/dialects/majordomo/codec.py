"""Codec of Majordomo: frames to messages and back, without state. A connection's first message shows its edition."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from dragoman.carriers.carrier import Frame, Message
from dragoman.carriers.malformed import Malformed
from dragoman.core.names import is_name
from dragoman.dialects.majordomo.editions import WIRES, EditionFrames
from dragoman.dialects.majordomo.messages import (
    BrokerMessage,
    ClientReply,
    ClientRequest,
    Disconnect,
    Heartbeat,
    Ready,
    WorkerMessage,
    WorkerReply,
    WorkerRequest,
)
from dragoman.dialects.majordomo.multiframe import MultiframeBody

MAX_SERVICE_BYTES: Final = 128
MAX_BODY_FRAMES: Final = 59  # with the five frames before a worker's body, the carrier's maximum
RESERVED: Final = "mmi."  # prefix of the broker's own services

_HEARTBEAT: Final = Heartbeat()
_DISCONNECT: Final = Disconnect()
_HEADER_BYTES: Final = 6
_CLIENTS: Final = {wire.client_head: wire for wire in WIRES.values()}
_WORKERS: Final = {wire.worker_head: wire for wire in WIRES.values()}


def recognise(message: Message) -> tuple[EditionFrames, bool]:
    """Return the edition of a connection's first message, and whether a worker sent it. Raises Malformed."""
    head = tuple(bytes(frame) for frame in message[: 1 if message and message[0] else 2] if len(frame) <= _HEADER_BYTES)
    wire = _WORKERS.get(head)
    if wire is not None:
        return wire, True
    wire = _CLIENTS.get(head)
    if wire is None:
        raise Malformed("unknown header", f"{len(message)} frames that begin with no edition's header")
    for each in WIRES.values():  # two editions have the same header, and different command numbers
        if each.client_head == head and message[len(head) : len(head) + 1] == [each.client_request]:
            return each, False
    return wire, False


def read_worker(message: Message, wire: EditionFrames) -> WorkerMessage:
    """Parse a worker's message. Raises Malformed."""
    command, at = _command(message, wire.worker_head)
    count = len(message)
    if command == wire.final or command == wire.partial:
        if count < at + 1:
            raise Malformed("no envelope", "a reply needs the client's frame of its request")
        has_delimiter = count > at + 1 and not message[at + 1]  # the Guide's worker in PHP sends none
        return WorkerReply(message[at], _body(message, at + 1 + has_delimiter), command == wire.final)
    if command == wire.heartbeat or command == wire.disconnect:
        _expect(message, at)
        return _HEARTBEAT if command == wire.heartbeat else _DISCONNECT
    if command == wire.ready:
        _expect(message, at + 1)
        service = _service(message[at])
        if service.startswith(RESERVED):
            raise Malformed("reserved service", f"names that begin with {RESERVED} are reserved for the broker")
        return Ready(service)
    raise _unknown(command)


def read_client(message: Message, wire: EditionFrames) -> ClientRequest:
    """Parse a client's message. Raises Malformed."""
    at = len(wire.client_head)
    if wire.client_request is None:
        _check_head(message, wire.client_head)
    else:
        command, at = _command(message, wire.client_head)
        if command != wire.client_request:
            raise _unknown(command)
    if len(message) <= at:
        raise Malformed("too few frames", "the request has no service")
    return ClientRequest(_service(message[at]), _body(message, at + 1))


def read_broker(message: Message, wire: EditionFrames) -> BrokerMessage:
    """Parse a broker's message to a worker. Raises Malformed."""
    command, at = _command(message, wire.worker_head)
    if command == wire.request:
        if len(message) < at + 2 or message[at + 1]:
            raise Malformed("no envelope", "a request needs a client's frame and an empty one after it")
        return WorkerRequest(message[at], _body(message, at + 2))
    _expect(message, at)
    if command == wire.heartbeat:
        return _HEARTBEAT
    if command == wire.disconnect:
        return _DISCONNECT
    raise _unknown(command)


def read_reply(message: Message, wire: EditionFrames) -> ClientReply:
    """Parse a broker's message to a client. Raises Malformed."""
    at = len(wire.client_head)
    is_final = True
    if wire.client_final is None:
        _check_head(message, wire.client_head)
    else:
        command, at = _command(message, wire.client_head)
        is_final = command == wire.client_final
        if not is_final and command != wire.client_partial:
            raise _unknown(command)
    if not wire.names_service:
        return ClientReply(None, _body(message, at), is_final)
    if len(message) <= at:
        raise Malformed("too few frames", "the reply has no service")
    return ClientReply(_service(message[at]), _body(message, at + 1), is_final)


def write_ready(wire: EditionFrames, service: str) -> list[Frame]:
    return [*wire.worker_head, wire.ready, service.encode()]


def write_heartbeat(wire: EditionFrames) -> list[Frame]:
    return [*wire.worker_head, wire.heartbeat]


def write_disconnect(wire: EditionFrames) -> list[Frame]:
    return [*wire.worker_head, wire.disconnect]


def write_worker_request(wire: EditionFrames, client: Frame, body: Frame) -> list[Frame]:
    return _with_body([*wire.worker_head, wire.request, client, b""], body)


def write_worker_reply(wire: EditionFrames, client: Frame, body: Frame) -> list[Frame]:
    return _with_body([*wire.worker_head, wire.final, client, b""], body)


def write_client_request(wire: EditionFrames, service: str, body: Frame) -> list[Frame]:
    command = () if wire.client_request is None else (wire.client_request,)
    return _with_body([*wire.client_head, *command, service.encode()], body)


def write_client_reply(wire: EditionFrames, service: str, body: Frame) -> list[Frame]:
    command = () if wire.client_final is None else (wire.client_final,)
    return _reply(wire, command, service, body)


def write_client_part(wire: EditionFrames, service: str, body: Frame) -> list[Frame]:
    """Encode a part of a result, for editions that support it."""
    assert wire.client_partial is not None, "this edition has no partial results"
    return _reply(wire, (wire.client_partial,), service, body)


def _reply(wire: EditionFrames, command: Sequence[Frame], service: str, body: Frame) -> list[Frame]:
    name = (service.encode(),) if wire.names_service else ()
    return _with_body([*wire.client_head, *command, *name], body)


def _with_body(frames: list[Frame], body: Frame) -> list[Frame]:
    if type(body) is MultiframeBody:
        frames += body.frames
    else:
        frames.append(body)
    return frames


def _body(message: Message, at: int) -> Frame:
    """Return the body. RFC 18 requires at least one frame; none counts as an empty one."""
    count = len(message) - at
    if count == 1:
        return message[at]
    if count > MAX_BODY_FRAMES:
        raise Malformed("too many frames", f"a body of {count} frames; at most {MAX_BODY_FRAMES} are allowed")
    return MultiframeBody.of(message[at:]) if count else b""


def _command(message: Message, head: Sequence[bytes]) -> tuple[Frame, int]:
    """Return the command, and the index of the frame after it."""
    at = len(head)
    _check_head(message, head)
    if len(message) <= at:
        raise Malformed("too few frames", "the header has no command")
    return message[at], at + 1


def _check_head(message: Message, head: Sequence[bytes]) -> None:
    at = len(head)
    if len(message) < at or message[at - 1] != head[-1] or (at == 2 and message[0]):
        raise Malformed(
            "wrong header", f"{len(message)} frames whose header differs from this connection's first message"
        )


def _expect(message: Message, count: int) -> None:
    if len(message) != count:
        raise Malformed("unexpected frames", f"{len(message)} frames; {count} are expected")


def _service(frame: Frame) -> str:
    if len(frame) > MAX_SERVICE_BYTES:
        raise _bad_name()
    return _name(bytes(frame))


@lru_cache(maxsize=1024)  # the same few names come with every request, and checking reads each character
def _name(raw: bytes) -> str:
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        raise _bad_name() from None
    if not is_name(name, MAX_SERVICE_BYTES):
        raise _bad_name()
    return name


def _bad_name() -> Malformed:
    bounds = f"1 to {MAX_SERVICE_BYTES} bytes of visible UTF-8 text"
    return Malformed("bad service name", f"a name has {bounds}")


def _unknown(command: Frame) -> Malformed:
    shown = bytes(command).hex() if len(command) == 1 else f"{len(command)} bytes"
    return Malformed("unknown command", f"the command {shown}")
