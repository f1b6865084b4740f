"""Retry options of commands."""

from __future__ import annotations

from typing import Any

import pytest

from command_runner import command_runner
from dragoman import Client
from dragoman.cli import dragoman
from dragoman.operations.operation import Operation
from dragoman.operations.schemas import OperationRequest

OPTIONS = ("--retry-first", "5", "--retry-cap", "60", "--retry-jitter", "0.5")
VALUES = {"retry_first": 5.0, "retry_cap": 60.0, "retry_jitter": 0.5}


class RequestSent(Exception):
    """Ends a command that has sent its request."""


@pytest.mark.parametrize(("words", "values"), [(OPTIONS, VALUES), ((), {})], ids=["set", "not set"])
def test_enqueue_passes_retry_options(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], values: dict[str, float]
) -> None:
    sent: list[dict[str, Any]] = []

    def enqueue(client: Client[bytes], service: str, payload: bytes, **options: Any) -> str:
        sent.append(options)
        return "1"

    monkeypatch.setattr(Client, "enqueue", enqueue)
    ran = command_runner().invoke(dragoman, ["enqueue", "s", "x", *words])
    assert (ran.exit_code, sent) == (0, [values])


@pytest.mark.parametrize(("words", "values"), [(OPTIONS, VALUES), ((), dict.fromkeys(VALUES))], ids=["set", "not set"])
def test_schedule_passes_retry_options(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], values: dict[str, float]
) -> None:
    sent: list[dict[str, Any]] = []

    def operation(client: Client[bytes], row: Operation[Any, Any], request: OperationRequest, payload: bytes) -> object:
        sent.append({name: getattr(request, name) for name in VALUES})
        raise RequestSent

    monkeypatch.setattr(Client, "operation", operation)
    ran = command_runner().invoke(dragoman, ["schedule", "set", "n", "s", "--every", "30", "--json", *words])
    assert (type(ran.exception), sent) == (RequestSent, [values])


@pytest.mark.parametrize("words", [("--retry-first", "-1"), ("--retry-cap", "86401"), ("--retry-jitter", "1.1")])
def test_retry_option_out_of_range_is_a_usage_error(words: tuple[str, ...]) -> None:
    for command in (["enqueue", "s"], ["schedule", "set", "n", "s", "--every", "30"]):
        ran = command_runner().invoke(dragoman, [*command, *words])
        assert ran.exit_code == 2
        assert words[0] in ran.stderr
