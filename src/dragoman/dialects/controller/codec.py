"""Heads to words and back, without any memory.

Protobuf is read as protobuf is: fields may come in any order, the last of several counts, unknown ones and those of
another wire type are skipped, and what is absent is 0. So the only thing that cannot be read is what is not protobuf.
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
    """A pulse in numbers: `edition_of_pulse` tells whose they are, and `pulse_of` what they mean. Raises Malformed."""
    try:
        pulse = wire.WorkerPulse.FromString(bytes(head))
    except DecodeError:
        raise _unreadable(head, "WorkerPulse") from None
    return RawPulse(pulse.type, pulse.worker_id, pulse.task_id, pulse.next_pulse)


def edition_of_pulse(type: int, worker_id: int, known: Edition | None, fixed: Edition | None = None) -> Edition:
    """Whose numbers a pulse has, and its answer must have.

    `known`: the edition of the worker that is registered by this id, if one is. `fixed`: what the listener's URL says.
    Type 0 is REGISTER, for that is what a message without a type is in `seed`, whatever its other fields hold. Else a
    worker's id tells, also that of a worker we have forgotten. No id and type 2 is how `shifted` registers.
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
    return Pulse(edition.pulses.word.get(raw.type), raw.worker_id, raw.task_id, raw.next_pulse, raw.type)


def write_pulse(
    kind: PulseKind, edition: Edition, *, worker_id: int = 0, task_id: int = 0, next_pulse: int = 0
) -> bytes:
    type = edition.pulses.number[kind]
    pulse = wire.WorkerPulse(type=type, worker_id=worker_id, task_id=task_id, next_pulse=next_pulse)
    return pulse.SerializeToString()


def read_pulse_response(head: Frame, edition: Edition) -> PulseResponse:
    """Raises Malformed."""
    try:
        response = wire.PulseResponse.FromString(bytes(head))
    except DecodeError:
        raise _unreadable(head, "PulseResponse") from None
    number = response.error
    return PulseResponse(edition.controller_errors.word.get(number), response.worker_id, number)


def write_pulse_response(error: ControllerError, edition: Edition, *, worker_id: int = 0) -> bytes:
    response = wire.PulseResponse(error=edition.controller_errors.number[error], worker_id=worker_id or None)
    return response.SerializeToString()


# -------------------------------------------------------------------- on a worker's socket


def read_control(head: Frame, edition: Edition) -> Control:
    """Raises Malformed."""
    control = _parse_control(head)
    number = control.type
    return Control(edition.controls.word.get(number), control.task_id, control.extra_size, number)


def write_control(kind: ControlKind, edition: Edition, *, task_id: int = 0, extra_size: int = 0) -> bytes:
    control = wire.ControlMsg(type=edition.controls.number[kind], extra_size=extra_size, task_id=task_id or None)
    return control.SerializeToString()


def read_response(head: Frame, edition: Edition) -> Response:
    """Raises Malformed."""
    response = _parse_response(head)
    number = response.error
    return Response(edition.worker_errors.word.get(number), response.task_id, response.extra_size, number)


def write_response(error: WorkerError, edition: Edition, *, task_id: int = 0, extra_size: int = 0) -> bytes:
    number = edition.worker_errors.number[error]
    return wire.WorkerResponse(error=number, task_id=task_id, extra_size=extra_size).SerializeToString()


# -------------------------------------------------------------------- how many bytes follow a head, for the carrier


def extra_of_pulse(head: bytes) -> int:
    """None, neither behind a pulse nor behind its answer. Whether it can be read is for the session to find out, which
    can still answer."""
    return 0


def extra_of_control(head: bytes) -> int:
    """Raises Malformed."""
    return _parse_control(head).extra_size


def extra_of_response(head: bytes) -> int:
    """Raises Malformed."""
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
    return Malformed("unreadable", f"{len(head)} bytes where a {name} should be, and they are not protobuf")
