"""Codec of Worker-Controller: heads to messages and back, without state.

A head is a message of protobuf (proto3) with at most four numbers. Field 1 is an int32: an enum in the document, whose
numbers are in editions.py. The others are uint64. Fields are written in their order, without those that are 0.

Reading follows protobuf's rules: fields may come in any order, the last of several counts, unknown fields and those of
another wire type are skipped, and an absent field is 0. So only bytes that are not protobuf are an error.
"""

from __future__ import annotations

from typing import Final

from dragoman.carriers.carrier import Frame
from dragoman.carriers.malformed import Malformed
from dragoman.dialects.controller.editions import SEED, SHIFTED, Edition, edition_of_id
from dragoman.dialects.controller.messages import (
    Control,
    ControlKind,
    ControllerError,
    Pulse,
    PulseKind,
    PulseResponse,
    RawPulse,
    Response,
    WorkerError,
)

# -------------------------------------------------------------------- on the controller's socket


def read_pulse(head: Frame) -> RawPulse:
    """Parse a pulse into numbers; `edition_of_pulse` and `pulse_of` find their meaning. Raises Malformed."""
    numbers = _read(head, "WorkerPulse")
    return RawPulse(numbers[1], numbers[2], numbers[3], numbers[4])


def edition_of_pulse(type: int, worker_id: int, known: Edition | None, fixed: Edition | None = None) -> Edition:
    """Return the edition of a pulse, and of its reply.

    `known`: the edition of the worker that is registered by this id, if any. `fixed`: the edition in the URL.
    Type 0 is REGISTER: in `seed` a message without a type is one, whatever its other fields are. Otherwise the worker's
    id decides, even that of a forgotten worker. No id and type 2 is the REGISTER of `shifted`.
    """
    if fixed is not None:
        return fixed
    if type == SEED.pulses.number[PulseKind.REGISTER]:
        return SEED
    named = known or edition_of_id(worker_id)
    if named is not None:
        return named
    return SHIFTED if type == SHIFTED.pulses.number[PulseKind.REGISTER] else SEED


def pulse_of(raw: RawPulse, edition: Edition) -> Pulse:
    return Pulse(edition.pulses.member.get(raw.type), raw.worker_id, raw.task_id, raw.next_pulse, raw.type)


def write_pulse(
    kind: PulseKind, edition: Edition, *, worker_id: int = 0, task_id: int = 0, next_pulse: int = 0
) -> bytes:
    return _write([edition.pulses.number[kind], worker_id, task_id, next_pulse])


def read_pulse_response(head: Frame, edition: Edition) -> PulseResponse:
    """Parse the reply to a pulse. Raises Malformed."""
    numbers = _read(head, "PulseResponse")
    return PulseResponse(edition.controller_errors.member.get(numbers[1]), numbers[2], numbers[1])


def write_pulse_response(error: ControllerError, edition: Edition, *, worker_id: int = 0) -> bytes:
    return _write([edition.controller_errors.number[error], worker_id])


# -------------------------------------------------------------------- on a worker's socket


def read_control(head: Frame, edition: Edition) -> Control:
    """Parse a control message. Raises Malformed."""
    numbers = _read(head, "ControlMsg")
    return Control(edition.controls.member.get(numbers[1]), numbers[3], numbers[2], numbers[1])


def write_control(kind: ControlKind, edition: Edition, *, task_id: int = 0, extra_size: int = 0) -> bytes:
    return _write([edition.controls.number[kind], extra_size, task_id])


def read_response(head: Frame, edition: Edition) -> Response:
    """Parse the reply to a control message. Raises Malformed."""
    numbers = _read(head, "WorkerResponse")
    return Response(edition.worker_errors.member.get(numbers[1]), numbers[2], numbers[3], numbers[1])


def write_response(error: WorkerError, edition: Edition, *, task_id: int = 0, extra_size: int = 0) -> bytes:
    return _write([edition.worker_errors.number[error], task_id, extra_size])


# -------------------------------------------------------------------- number of bytes after a head, for the carrier


def extra_of_pulse(head: bytes) -> int:
    """Return 0: neither a pulse nor its reply has extra bytes. The broker side parses the head, because it can
    still send an error."""
    return 0


def extra_of_control(head: bytes) -> int:
    """Return the number of bytes after a control message. Raises Malformed."""
    return _read(head, "ControlMsg")[2]


def extra_of_response(head: bytes) -> int:
    """Return the number of bytes after a response. Raises Malformed."""
    return _read(head, "WorkerResponse")[3]


# -------------------------------------------------------------------- protobuf

_LARGEST: Final = (1 << 64) - 1
_LARGEST_TAG: Final = (1 << 32) - 1  # 29 bits of field number, 3 of wire type
_DEEPEST: Final = 100  # groups within groups, as in protobuf's own libraries

# Wire types; 6 and 7 are undefined.
_VARINT: Final = 0
_FIXED_64: Final = 1
_BYTES: Final = 2
_START_GROUP: Final = 3
_END_GROUP: Final = 4
_FIXED_32: Final = 5


def _write(numbers: list[int]) -> bytes:
    """The fields from 1 on."""
    head = bytearray()
    for index, number in enumerate(numbers):
        assert 0 <= number <= _LARGEST, f"{number} is no uint64"
        if number == 0:
            continue
        head.append((index + 1) << 3)
        while number > 0x7F:
            head.append(number & 0x7F | 0x80)
            number >>= 7
        head.append(number)
    return bytes(head)


def _read(head: Frame, name: str) -> list[int]:
    """The numbers of fields 1 to 4 by field number; 0 is not one. Raises Malformed: `head` is no message `name`."""
    try:
        return _fields_of(bytes(head))
    except (IndexError, ValueError):
        reason = f"{len(head)} bytes instead of a {name}; they are not protobuf"
        raise Malformed("unreadable", reason) from None


def _fields_of(head: bytes) -> list[int]:
    """Raises ValueError or, if the head ends within a field, IndexError."""
    found = [0, 0, 0, 0, 0]
    groups: list[int] = []  # numbers of the groups that have begun and not ended; all fields in them are unknown
    at = 0
    while at < len(head):
        tag, at = _varint(head, at, 5)
        field, wire_type = tag >> 3, tag & 7
        if (field == 0 and not groups) or tag > _LARGEST_TAG:
            raise ValueError(tag)
        if wire_type == _VARINT:
            number, at = _varint(head, at, 10)
            if field == 1 and not groups:
                found[1] = (number & 0xFFFFFFFF ^ 0x80000000) - 0x80000000  # an int32: two's complement
            elif field <= 4 and not groups:
                found[field] = number & _LARGEST
        elif wire_type == _BYTES:
            size, at = _varint(head, at, 5)
            at += size
        elif wire_type == _FIXED_64:
            at += 8
        elif wire_type == _FIXED_32:
            at += 4
        elif wire_type == _START_GROUP and len(groups) < _DEEPEST:
            groups.append(field)
        elif wire_type != _END_GROUP or groups.pop() != field:
            raise ValueError(wire_type)
    if groups or at > len(head):
        raise ValueError(at)
    return found


def _varint(head: bytes, at: int, most: int) -> tuple[int, int]:
    """A number of at most so many bytes, which may have leading zeros, and the index after it."""
    number = head[at]
    if number < 0x80:
        return number, at + 1
    number &= 0x7F
    for count in range(1, most):
        byte = head[at + count]
        number |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return number, at + count + 1
    raise ValueError(number)
