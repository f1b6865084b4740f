"""The texts and decisions of the demo that need no processes."""

from __future__ import annotations

import shlex
import signal
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import click
import pytest

from case_tables import check_every_row
from command_runner import command_runner
from dragoman.cli import dragoman
from dragoman.demo import processes, story
from dragoman.demo.load import AWAY, PATIENCE, STAY, Visitor, submit_job
from dragoman.demo.matrix import Cell, matrix_lines, payloads
from dragoman.demo.scenes import attempt_lines
from dragoman.demo.story import next_commands, sum_up
from dragoman.operations.schemas import AttemptView, JobView


def test_table_has_medians_in_milliseconds_and_marks_wrong_cells() -> None:
    cells = [
        Cell("native", "pingpong", [0.001, 0.002, 0.009]),
        Cell("native", "http", [0.0123]),
        Cell("memodb", "pingpong", [0.5], problem="no answer within 60 s"),
        Cell("memodb", "http", [0.0004]),
    ]
    assert matrix_lines(cells, lambda text: f"<{text}>") == [
        "       PingPong  HTTP",
        "Native     2.00 12.30",
        "MemoDB <   wrong>  0.40",
    ]


def test_payloads_differ_from_each_other_and_from_their_reverse_and_are_the_same_in_each_run() -> None:
    made = list(payloads("native http", 50))
    assert made == list(payloads("native http", 50))
    assert len({*made, *(each[::-1] for each in made)}) == 100


def test_attempts_of_a_job_are_lines() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    attempts = [
        AttemptView(number=1, worker="a", outcome="lost", reason="killed", ended=start + timedelta(seconds=2)),
        AttemptView(number=2, worker="b"),
    ]
    job = Mock(spec=JobView, attempts=attempts, created=start)
    assert attempt_lines(job) == [
        "  attempt 1  lost  after 2.00 s   worker a: killed",
        "  attempt 2  done                 worker b",
    ]


def test_one_worker_comes_and_goes() -> None:
    started: list[Mock] = []

    def start() -> Mock:
        started.append(Mock())
        return started[-1]

    visitor = Visitor(start, 100.0)
    visitor.come_or_go(100.0 + AWAY - 1)
    assert started == []
    visitor.come_or_go(100.0 + AWAY)
    visitor.come_or_go(100.0 + AWAY + STAY - 1)
    (worker,) = started
    worker.stop.assert_not_called()
    visitor.come_or_go(100.0 + AWAY + STAY)
    worker.stop.assert_called_once_with()
    visitor.come_or_go(100.0 + AWAY + STAY + AWAY)
    assert len(started) == 2


def test_commands_to_try_next_exist() -> None:
    for line in next_commands("dragoman"):
        words = shlex.split(line.partition("#")[0])[1:]
        group = click.Context(dragoman, info_name="dragoman")
        name, command, rest = dragoman.resolve_command(group, words)
        assert command is not None
        command.make_context(name, rest, parent=group)


class SilentBroker:
    """A broker whose jobs never end. It has the options of the calls."""

    def __init__(self) -> None:
        self.timeouts: list[float] = []
        self.http = self

    def client(self, dialect: str, service: str) -> SilentBroker:
        return self

    def enqueue(self, service: str, payload: bytes, **options: float) -> None: ...

    def submit(self, service: str, payload: bytes, *, timeout: float) -> None:
        self.timeouts.append(timeout)


def test_calls_of_the_load_end_by_themselves() -> None:
    """A bug: while a service was paused, its calls used up all connections, and the load stopped."""
    broker: Any = SilentBroker()
    for _ in range(50):
        submit_job(broker)
    assert set(broker.timeouts) == {PATIENCE}


class CountingBroker:
    """A broker that has done this number of jobs."""

    def __init__(self, done: int) -> None:
        self.http = self
        self._done = done

    def services(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(ended={"done": self._done, "failed": 3}), SimpleNamespace(ended={})]


def test_sum_is_right_only_if_every_pair_is_and_no_job_was_done_twice() -> None:
    def check(problem: str, counted: int, expected: bool) -> None:
        cells = [Cell("native", "http", [0.001]), Cell("http", "native", [0.001], problem)]
        broker: Any = CountingBroker(counted)
        assert sum_up(broker, cells, 2, None) is expected

    check_every_row(check, [("", 2, True), ("a call returned b'x'", 2, False), ("", 3, False), ("", 1, False)])


def test_demo_with_a_wrong_result_has_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(is_right: bool, code: int) -> None:
        monkeypatch.setattr(story, "tell", lambda sizes, stays: is_right)
        monkeypatch.setattr(processes, "forget_settings", lambda: None)
        monkeypatch.setattr(signal, "signal", lambda number, handler: None)
        assert command_runner().invoke(dragoman, ["demo"]).exit_code == code

    check_every_row(check, [(True, 0), (False, 1)])
