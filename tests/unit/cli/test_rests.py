"""How long jobs rest between attempts, as commands say it."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from click.testing import CliRunner

from dragoman.cli import dragoman
from dragoman.cli.http import Answer

RESTS = ("--retry-first", "5", "--retry-cap", "60", "--retry-jitter", "0.5")
SAID = {"retry_first": 5.0, "retry_cap": 60.0, "retry_jitter": 0.5}


@pytest.mark.parametrize(("words", "said"), [(RESTS, SAID), ((), {})], ids=["said", "not said"])
def test_enqueue_says_how_long_to_rest(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: dict[str, float]
) -> None:
    asked: list[dict[str, Any]] = []

    def request(*_: object, query: dict[str, Any], **__: object) -> Answer:
        asked.append({name: value for name, value in query.items() if name in SAID and value is not None})
        return Answer(202, b'{"id": "1"}')

    monkeypatch.setattr(importlib.import_module("dragoman.cli.enqueue"), "request", request)
    ran = CliRunner().invoke(dragoman, ["enqueue", "s", "x", *words])
    assert (ran.exit_code, asked) == (0, [said])


@pytest.mark.parametrize(("words", "said"), [(RESTS, SAID), ((), {})], ids=["said", "not said"])
def test_a_recurring_job_says_how_long_to_rest(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: dict[str, float]
) -> None:
    asked: list[dict[str, Any]] = []

    def ask(*_: object, said: dict[str, Any], **__: object) -> dict[str, Any]:
        asked.append({name: value for name, value in said.items() if name in SAID})
        return {"name": "n"}

    monkeypatch.setattr(importlib.import_module("dragoman.cli.schedule"), "ask", ask)
    ran = CliRunner().invoke(dragoman, ["cron", "set", "n", "s", "--every", "30", "--json", *words])
    assert (ran.exit_code, asked) == (0, [said])


@pytest.mark.parametrize("words", [("--retry-first", "-1"), ("--retry-cap", "86401"), ("--retry-jitter", "1.1")])
def test_a_rest_that_makes_no_sense_is_a_mistake_of_use(words: tuple[str, ...]) -> None:
    for command in (["enqueue", "s"], ["cron", "set", "n", "s", "--every", "30"]):
        ran = CliRunner().invoke(dragoman, [*command, *words])
        assert ran.exit_code == 2
        assert words[0] in ran.output
