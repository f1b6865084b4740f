"""Delays between attempts, as commands say them."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from dragoman import Client
from dragoman.cli import dragoman
from dragoman.operations.operation import Operation
from dragoman.operations.schemas import OperationRequest

RESTS = ("--retry-first", "5", "--retry-cap", "60", "--retry-jitter", "0.5")
SAID = {"retry_first": 5.0, "retry_cap": 60.0, "retry_jitter": 0.5}


class Asked(Exception):
    """Ends a command that has asked."""


@pytest.mark.parametrize(("words", "said"), [(RESTS, SAID), ((), {})], ids=["said", "not said"])
def test_enqueue_says_how_long_to_rest(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: dict[str, float]
) -> None:
    asked: list[dict[str, Any]] = []

    def enqueue(client: Client[bytes], service: str, payload: bytes, **options: Any) -> str:
        asked.append(options)
        return "1"

    monkeypatch.setattr(Client, "enqueue", enqueue)
    ran = CliRunner().invoke(dragoman, ["enqueue", "s", "x", *words])
    assert (ran.exit_code, asked) == (0, [said])


@pytest.mark.parametrize(("words", "said"), [(RESTS, SAID), ((), dict.fromkeys(SAID))], ids=["said", "not said"])
def test_a_recurring_job_says_how_long_to_rest(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: dict[str, float]
) -> None:
    asked: list[dict[str, Any]] = []

    def operation(client: Client[bytes], row: Operation[Any, Any], request: OperationRequest, payload: bytes) -> object:
        asked.append({name: getattr(request, name) for name in SAID})
        raise Asked

    monkeypatch.setattr(Client, "operation", operation)
    ran = CliRunner().invoke(dragoman, ["schedule", "set", "n", "s", "--every", "30", "--json", *words])
    assert (type(ran.exception), asked) == (Asked, [said])


@pytest.mark.parametrize("words", [("--retry-first", "-1"), ("--retry-cap", "86401"), ("--retry-jitter", "1.1")])
def test_a_rest_that_makes_no_sense_is_a_mistake_of_use(words: tuple[str, ...]) -> None:
    for command in (["enqueue", "s"], ["schedule", "set", "n", "s", "--every", "30"]):
        ran = CliRunner().invoke(dragoman, [*command, *words])
        assert ran.exit_code == 2
        assert words[0] in ran.output
