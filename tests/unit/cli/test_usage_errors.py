"""Errors about what the user typed: the value, the allowed values and the next step."""

from __future__ import annotations

import pytest

from case_tables import check_every_row
from command_runner import command_runner
from dragoman.cli import dragoman

ID = "a job's id has 32 lower-case hex digits, as `dragoman enqueue` and `dragoman jobs` print it"
WORKER = (
    "give either MODULE, MODULE:OBJECT or --exec CMD, such as `dragoman worker --exec 'tr a-z A-Z' --service upper`; "
    "`dragoman worker --help` has more examples"
)
ATTEMPTS = "Invalid value for '--attempts': '1000': must be at most 100; allowed: 1 to 100"
TIMEOUT = "Invalid value for '--timeout': {}: must be a number of seconds over 0, such as 30 or 0.5, or none"
DAY = "more than 0, at most 86400 (1 day), or none"

ROWS = [
    (["job", "123"], f"dragoman: job '123': {ID}\n"),
    (["job", "123", "--payload"], f"dragoman: job '123': {ID}\n"),
    (["why", "A" * 32], f"dragoman: job '{'A' * 32}': {ID}\n"),
    (["result", "a" * 31], f"dragoman: job '{'a' * 31}': {ID}\n"),
    (["enqueue", "s", "--attempts", "1000"], ATTEMPTS),
    (["enqueue", "s", "--timeout", "abc"], f"'--timeout': 'abc': must be a number, not text; allowed: {DAY}"),
    (["schedule", "set", "n", "s", "--every", "5", "--attempts", "1000"], ATTEMPTS),
    (["call", "s", "--timeout", "abc"], TIMEOUT.format("'abc'")),
    (["call", "s", "--timeout", "0"], TIMEOUT.format("'0'")),
    (["call", "s", "--timeout", "nan"], TIMEOUT.format("'nan'")),
    (["jbos"], "No such command 'jbos' (did you mean 'jobs'?)."),
    (["show-wroker", "1"], "No such command 'show-wroker' (did you mean 'show-worker'?)."),
    (["zzz"], "No such command 'zzz'."),
    (["worker"], f"dragoman: {WORKER}\n"),
]


def test_an_error_of_use_says_what_is_allowed() -> None:
    def check(words: list[str], says: str) -> None:
        ran = command_runner().invoke(dragoman, words)
        assert ran.exit_code == 2
        assert says in ran.stderr

    check_every_row(check, ROWS)


@pytest.mark.parametrize("words", [["--no-such-option"], ["--help"]])
def test_options_are_not_taken_for_commands(words: list[str]) -> None:
    assert "No such command" not in command_runner().invoke(dragoman, words).stderr
