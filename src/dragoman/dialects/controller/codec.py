"""Codec of Worker-Controller: heads to messages and back, without state.

Protobuf rules apply: fields may come in any order, the last of several counts, unknown fields and those of another
wire type are skipped, and an absent field is 0. So only bytes that are not protobuf are an error.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from dragoman.carriers.carrier import Frame
from dragoman.carriers.malformed import Malformed
from dragoman.dialects.controller import controller_pb2 as wire
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
    try:
        pulse = wire.WorkerPulse.FromString(bytes(head))
    except DecodeError:
        raise _unreadable(head, "WorkerPulse") from None
    return RawPulse(pulse.type, pulse.worker_id, pulse.task_id, pulse.next_pulse)


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
    type = edition.pulses.number[kind]
    pulse = wire.WorkerPulse(type=type, worker_id=worker_id, task_id=task_id, next_pulse=next_pulse)
    return pulse.SerializeToString()


def read_pulse_response(head: Frame, edition: Edition) -> PulseResponse:
    """Parse the reply to a pulse. Raises Malformed."""
    try:
        response = wire.PulseResponse.FromString(bytes(head))
    except DecodeError:
        raise _unreadable(head, "PulseResponse") from None
    number = response.error
    return PulseResponse(edition.controller_errors.member.get(number), response.worker_id, number)


def write_pulse_response(error: ControllerError, edition: Edition, *, worker_id: int = 0) -> bytes:
    response = wire.PulseResponse(error=edition.controller_errors.number[error], worker_id=worker_id or None)
    return response.SerializeToString()


# -------------------------------------------------------------------- on a worker's socket


def read_control(head: Frame, edition: Edition) -> Control:
    """Parse a control message. Raises Malformed."""
    control = _parse_control(head)
    number = control.type
    return Control(edition.controls.member.get(number), control.task_id, control.extra_size, number)


def write_control(kind: ControlKind, edition: Edition, *, task_id: int = 0, extra_size: int = 0) -> bytes:
    control = wire.ControlMsg(type=edition.controls.number[kind], extra_size=extra_size, task_id=task_id or None)
    return control.SerializeToString()


def read_response(head: Frame, edition: Edition) -> Response:
    """Parse the reply to a control message. Raises Malformed."""
    response = _parse_response(head)
    number = response.error
    return Response(edition.worker_errors.member.get(number), response.task_id, response.extra_size, number)


def write_response(error: WorkerError, edition: Edition, *, task_id: int = 0, extra_size: int = 0) -> bytes:
    number = edition.worker_errors.number[error]
    return wire.WorkerResponse(error=number, task_id=task_id, extra_size=extra_size).SerializeToString()


# -------------------------------------------------------------------- number of bytes after a head, for the carrier


def extra_of_pulse(head: bytes) -> int:
    """Return 0: neither a pulse nor its reply has extra bytes. The broker side parses the head, because it can
    still send an error."""
    return 0


def extra_of_control(head: bytes) -> int:
    """Return the number of bytes after a control message. Raises Malformed."""
    return _parse_control(head).extra_size


def extra_of_response(head: bytes) -> int:
    """Return the number of bytes after a response. Raises Malformed."""
    return _parse_response(head).extra_size


def _parse_control(head: Frame) -> wire.ControlMsg:
    try:
        return wire.ControlMsg.FromString(bytes(head))
    except DecodeError:
        raise _unreadable(head, "ControlMsg") from None


def _parse_response(head: Frame) -> wire.WorkerResponse:
    try:
        return wire.WorkerResponse.FromString(bytes(head))
    except DecodeError:
        raise _unreadable(head, "WorkerResponse") from None


def _unreadable(head: Frame, name: str) -> Malformed:
    return Malformed("unreadable", f"{len(head)} bytes instead of a {name}; they are not protobuf")
