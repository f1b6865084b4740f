"""Fuzz target: messages of Worker-Controller. All readers of both editions get the same head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.carriers.malformed import Malformed
from dragoman.dialects.controller import codec
from dragoman.dialects.controller.editions import SEED, SHIFTED, Edition


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
    for check in CHECKS:
        assert failure_of(check, data, SEED) == failure_of(check, data, SHIFTED)


def failure_of(check: Callable[[bytes, Edition], None], head: bytes, edition: Edition) -> str:
    try:
        check(head, edition)
    except Malformed as error:
        assert error.reason == "unreadable"
        return str(error)
    return ""
