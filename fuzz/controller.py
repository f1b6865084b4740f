"""Fuzz target: messages of Worker-Controller. All readers of both editions get the same head.

The official library of protobuf reads it, too: both find the same numbers, or neither can read it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from dragoman.carriers.malformed import Malformed
from dragoman.dialects.controller import codec
from dragoman.dialects.controller.editions import SEED, SHIFTED, Edition

# The fields of each message, in the order of their numbers. The first is an int32, the others are uint64.
FIELDS: Final = {
    "WorkerPulse": ("type", "worker_id", "task_id", "next_pulse"),
    "PulseResponse": ("error", "worker_id"),
    "ControlMsg": ("type", "extra_size", "task_id"),
    "WorkerResponse": ("error", "task_id", "extra_size"),
}


def official_classes() -> dict[str, Any]:
    """The messages as classes of the official library, by name."""
    types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="oracle.proto", package="oracle", syntax="proto3")
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for number, field in enumerate(fields, 1):
            kind = types.TYPE_INT32 if number == 1 else types.TYPE_UINT64
            message.field.add(name=field, number=number, type=kind, label=types.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = message_factory.GetMessageClassesForFiles([file.name], pool)
    return {name: found[f"oracle.{name}"] for name in FIELDS}


OFFICIAL: Final = official_classes()


def official_numbers(name: str, head: bytes) -> tuple[int, ...] | None:
    """The numbers that the official library finds in a message, by field; none if it cannot read it."""
    try:
        message = OFFICIAL[name].FromString(head)
    except DecodeError:
        return None
    return tuple(getattr(message, field) for field in FIELDS[name])


def our_numbers(name: str, head: bytes) -> tuple[int, ...] | None:
    """The same numbers as our codec finds them."""
    try:
        if name == "WorkerPulse":
            pulse = codec.read_pulse(head)
            return pulse.type, pulse.worker_id, pulse.task_id, pulse.next_pulse
        if name == "PulseResponse":
            answer = codec.read_pulse_response(head, SEED)
            return answer.number, answer.worker_id
        if name == "ControlMsg":
            control = codec.read_control(head, SEED)
            return control.number, control.extra_size, control.task_id
        response = codec.read_response(head, SEED)
        return response.number, response.task_id, response.extra_size
    except Malformed:
        return None


def check_pulse(head: bytes, edition: Edition) -> None:
    raw = codec.read_pulse(head)
    assert codec.edition_of_pulse(raw.type, raw.worker_id, None) in (SEED, SHIFTED)
    assert codec.edition_of_pulse(raw.type, raw.worker_id, edition, edition) is edition
    pulse = codec.pulse_of(raw, edition)
    if pulse.kind is not None:
        numbers = {"worker_id": pulse.worker_id, "task_id": pulse.task_id, "next_pulse": pulse.next_pulse}
        again = codec.pulse_of(codec.read_pulse(codec.write_pulse(pulse.kind, edition, **numbers)), edition)
        assert again == pulse


def check_pulse_response(head: bytes, edition: Edition) -> None:
    response = codec.read_pulse_response(head, edition)
    if response.error is not None:
        written = codec.write_pulse_response(response.error, edition, worker_id=response.worker_id)
        assert codec.read_pulse_response(written, edition) == response


def check_control(head: bytes, edition: Edition) -> None:
    control = codec.read_control(head, edition)
    assert codec.extra_of_control(head) == control.extra_size
    if control.kind is not None:
        numbers = {"task_id": control.task_id, "extra_size": control.extra_size}
        assert codec.read_control(codec.write_control(control.kind, edition, **numbers), edition) == control


def check_response(head: bytes, edition: Edition) -> None:
    response = codec.read_response(head, edition)
    assert codec.extra_of_response(head) == response.extra_size
    if response.error is not None:
        numbers = {"task_id": response.task_id, "extra_size": response.extra_size}
        assert codec.read_response(codec.write_response(response.error, edition, **numbers), edition) == response


CHECKS: Final[tuple[Callable[[bytes, Edition], None], ...]] = (
    check_pulse,
    check_pulse_response,
    check_control,
    check_response,
)


def test_one_input(data: bytes) -> None:
    for name in FIELDS:
        assert our_numbers(name, data) == official_numbers(name, data)
    for check in CHECKS:
        assert failure_of(check, data, SEED) == failure_of(check, data, SHIFTED)


def failure_of(check: Callable[[bytes, Edition], None], head: bytes, edition: Edition) -> str:
    try:
        check(head, edition)
    except Malformed as error:
        assert error.reason == "unreadable"
        return str(error)
    return ""
