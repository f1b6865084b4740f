"""Options that are a number of seconds or the word `none`, as people type them and as they are sent."""

from __future__ import annotations

from importlib import import_module
from math import inf
from typing import NoReturn

import click
import pytest
from click.testing import CliRunner

from dragoman import AsyncClient
from dragoman.cli import dragoman
from dragoman.cli.seconds import NO_LIMIT, SECONDS
from dragoman.sdk.unset import is_set


@pytest.mark.parametrize(("typed", "meant"), [("1.5", 1.5), ("86400", 86_400.0), ("none", NO_LIMIT)])
def test_a_number_or_the_word_none(typed: str, meant: object) -> None:
    assert SECONDS.convert(typed, None, None) == meant


@pytest.mark.parametrize("typed", ["0", "-1", "", "never"])
def test_all_else_is_refused(typed: str) -> None:
    with pytest.raises(click.BadParameter):
        SECONDS.convert(typed, None, None)


SAID = [(("--timeout", "none"), {"timeout": None}), (("--timeout", "5"), {"timeout": 5.0}), ((), {})]


@pytest.mark.parametrize(("words", "said"), SAID)
def test_enqueue_and_cron_ask_for_no_limit_with_null(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: dict[str, float | None]
) -> None:
    """A query has the word `null`; where nothing is said, nothing is sent."""
    sent: list[dict[str, object]] = []

    def request(url: str, method: str, path: str, *, query: dict[str, object], body: bytes) -> NoReturn:
        sent.append({key: None if value == "null" else value for key, value in query.items() if value is not None})
        raise click.exceptions.Exit

    def ask(url: str, method: str, path: str, *, said: dict[str, object]) -> NoReturn:
        sent.append(said)
        raise click.exceptions.Exit

    monkeypatch.setattr(import_module("dragoman.cli.enqueue"), "request", request)
    monkeypatch.setattr(import_module("dragoman.cli.schedule"), "ask", ask)
    for command in (("enqueue", "s"), ("cron", "set", "name", "s", "--every", "5")):
        assert CliRunner().invoke(dragoman, [*command, *words]).exit_code == 0
    assert len(sent) == 2
    for each in sent:
        assert {key: value for key, value in each.items() if key == "timeout"} == said


@pytest.mark.parametrize(("words", "limit"), [(("--timeout", "none"), inf), (("--timeout", "5"), 5.0), ((), None)])
def test_call_says_no_limit_or_nothing(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], limit: float | None
) -> None:
    asked: list[float | None] = []

    async def call(client: AsyncClient, service: str, payload: bytes, *, timeout: float | None) -> bytes:
        asked.append(is_set(timeout))
        return b""

    monkeypatch.setattr(AsyncClient, "call", call)
    assert CliRunner().invoke(dragoman, ["call", "s", *words]).exit_code == 0
    assert asked == [limit]
