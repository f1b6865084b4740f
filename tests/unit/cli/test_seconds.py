"""Options that are a number of seconds or the word `none`, as people type them and as they are sent."""

from __future__ import annotations

import json
from math import inf
from typing import NoReturn

import click
import pytest

from command_runner import command_runner
from dragoman import Client
from dragoman.cli import dragoman
from dragoman.cli.seconds import NO_LIMIT, SECONDS
from dragoman.sdk.operation import OperationCall
from dragoman.sdk.unset import is_set


@pytest.mark.parametrize(("typed", "meant"), [("1.5", 1.5), ("86400", 86_400.0), ("none", NO_LIMIT)])
def test_a_number_or_the_word_none(typed: str, meant: object) -> None:
    assert SECONDS.convert(typed, None, None) == meant


@pytest.mark.parametrize("typed", ["0", "-1", "", "never", "nan"])
def test_all_else_is_refused(typed: str) -> None:
    with pytest.raises(click.BadParameter):
        SECONDS.convert(typed, None, None)


UNSET = "unset"
SENT = [(("--timeout", "none"), [None, None]), (("--timeout", "5"), [5.0, 5.0]), ((), [60.0, UNSET])]


@pytest.mark.parametrize(("words", "timeouts"), SENT)
def test_enqueue_and_cron_take_none_for_no_limit(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], timeouts: list[object]
) -> None:
    """The default is sent by the client's `enqueue`; for a schedule the broker has it."""
    sent: list[object] = []

    def perform(client: Client[bytes], question: OperationCall) -> NoReturn:
        sent.append(json.loads(question.form).get("timeout", UNSET))
        raise click.exceptions.Exit

    monkeypatch.setattr(Client, "_request", perform)
    for command in (("enqueue", "s"), ("schedule", "set", "name", "s", "--every", "5")):
        assert command_runner().invoke(dragoman, [*command, *words]).exit_code == 0
    assert sent == timeouts


@pytest.mark.parametrize(("words", "limit"), [(("--timeout", "none"), inf), (("--timeout", "5"), 5.0), ((), None)])
def test_call_says_no_limit_or_nothing(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], limit: float | None
) -> None:
    asked: list[float | None] = []

    def call(client: Client[bytes], service: str, payload: bytes, *, timeout: float | None, tenant: None) -> bytes:
        asked.append(is_set(timeout))
        return b""

    monkeypatch.setattr(Client, "call", call)
    assert command_runner().invoke(dragoman, ["call", "s", *words]).exit_code == 0
    assert asked == [limit]
