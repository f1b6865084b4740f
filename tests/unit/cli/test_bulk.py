"""Commands with --all (`retry`, `cancel`, `delete`, `purge`): usage, confirmation, dry run, end and interruption."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import Result
from msgspec.structs import replace

from command_runner import command_runner
from dragoman import Client
from dragoman.cli import bulk, dragoman
from dragoman.cli.jobs import one_ahead
from dragoman.cli.moments import moment_of
from dragoman.operations.bulk_schemas import BulkRequest, BulkView
from dragoman.operations.schemas import JobView
from dragoman.sdk.errors import NotFound

ID = "0197f3a2c4d87b12a9e05c61f38d2b74"
MOMENT = datetime(2026, 11, 18, 3, tzinfo=UTC)


def view(**facts: Any) -> BulkView:
    usual: dict[str, Any] = {"of": 3, "done": 3, "left_out": 0, "over": True, "problem": "", "quarantined": 0}
    return BulkView(id=ID, act="retry", dry_run=False, left_out_reason="", jobs=[], **{**usual, **facts})


class Answers:
    """Answers operations in turn, and keeps the requests. An exception is raised."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: BulkView | BaseException) -> None:
        self.asked: list[tuple[str, Any]] = []
        self._answers = list(answers)
        monkeypatch.setattr(Client, "operation", self._answer())
        monkeypatch.setattr(bulk.time, "sleep", lambda seconds: None)

    def _answer(self) -> Callable[..., BulkView]:
        def answer(client: object, row: Any, request: Any, payload: bytes = b"") -> BulkView:
            self.asked.append((row.name, request))
            given = self._answers.pop(0)
            if isinstance(given, BaseException):
                raise given
            return given

        return answer


def run(*words: str, **options: Any) -> Result:
    return command_runner().invoke(dragoman, list(words), **options)


@pytest.mark.parametrize("command", ["retry", "cancel", "delete"])
def test_jobs_are_named_or_all_are_meant(command: str) -> None:
    for words in ([], ["--all", ID], ["--service", "s", ID], ["--dry-run", ID], ["--json", ID]):
        result = run(command, *words)
        assert result.exit_code == 2, words


@pytest.mark.parametrize(
    ("words", "operation", "state", "done"),
    [((), "cancel jobs", "pending", "cancelled"), (("--ended",), "delete jobs", None, "deleted")],
)
def test_purge_by_filter(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], operation: str, state: str | None, done: str
) -> None:
    answers = Answers(monkeypatch, view(), view())
    usual = ("purge", "--all", "--service", "s", "--reason", "memory", "--since", "2026-11-18T03:00:00Z", *words)
    assert run(*usual, "--dry-run").stdout.startswith(f"3 jobs would be {done}")
    assert run(*usual, "--yes").stdout == f"3 jobs are {done}\n"
    for name, request in answers.asked:
        assert (name, getattr(request, "state", None)) == (operation, state)
        assert (request.service, request.reason, request.since) == ("s", "memory", MOMENT)
    for wrong in (["purge"], ["purge", "s", "--all"], ["purge", "s", "--dry-run"]):
        assert run(*wrong).exit_code == 2, wrong


def test_filters_reach_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(monkeypatch, view())
    words = (
        "--service",
        "s",
        "--reason",
        "memory",
        "--since",
        "2026-11-18T03:00:00Z",
        "--outcome",
        "lost",
        "--rate",
        "5",
    )
    result = run("retry", "--all", *words)
    assert (result.exit_code, result.stdout) == (0, "3 jobs are retried\n")
    ((name, request),) = answers.asked
    assert isinstance(request, BulkRequest)
    facts = (request.service, request.reason, request.since, request.rate, request.all)
    assert (name, facts) == ("retry jobs", ("s", "memory", MOMENT, 5.0, True))
    assert (request.lease, len(request.id or "")) == (bulk.LEASE, 32)


def test_dry_run_says_how_many_and_which(monkeypatch: pytest.MonkeyPatch) -> None:
    first = JobView(
        id=ID,
        service="s",
        state="ended",
        outcome="failed",
        reason="out of memory",
        background=True,
        quarantined=True,
        priority=5,
        attempts=[],
        max_attempts=3,
        created=datetime.now(UTC),
    )
    answers = Answers(monkeypatch, replace(view(of=5_000, done=0, quarantined=12), jobs=[first]))
    result = run("delete", "--all", "--dry-run")
    lines = result.stdout.splitlines()
    assert lines[:2] == ["5,000 jobs, 12 of them in quarantine, would be deleted", "The first 1:"]
    assert (ID in lines[3], "out of memory" in lines[3]) == (True, True)
    assert answers.asked[0][1].dry_run


def test_dry_run_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    Answers(monkeypatch, view(of=0, done=0))
    assert run("retry", "--all", "--dry-run").stdout == "There are no such jobs.\n"


@pytest.mark.parametrize("command", ["cancel", "delete"])
def test_what_cannot_be_undone_needs_yes_without_a_terminal(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    Answers(monkeypatch, view(of=1, done=0), view(of=1, done=1))
    refused = run(command, "--all")
    assert (refused.exit_code, "add --yes" in refused.stderr) == (2, True)
    assert run(command, "--all", "--yes").exit_code == 0


def test_progress_is_asked_for_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(monkeypatch, view(done=1, over=False), view(done=2, over=False), view(done=1, of=1))
    assert run("retry", "--all").stdout == "1 job is retried\n"
    assert [name for name, _ in answers.asked] == ["retry jobs", "bulk act", "bulk act"]


def test_jobs_that_are_left_out_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    Answers(monkeypatch, replace(view(done=2, left_out=1), left_out_reason="job x is not in quarantine"))
    result = run("retry", "--all")
    assert (result.exit_code, result.stdout) == (0, "2 jobs are retried\n")
    assert result.stderr == "dragoman: 1 job left out: job x is not in quarantine\n"


def test_act_that_stops_before_its_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    Answers(monkeypatch, view(of=9, done=2, problem="store unavailable: disk full"))
    result = run("retry", "--all")
    assert result.exit_code == 1
    assert "stopped before the end, 7 jobs are unchanged: store unavailable: disk full" in result.stderr


def test_interrupt_stops_the_act_and_says_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(monkeypatch, view(of=9, done=1, over=False), KeyboardInterrupt(), view(of=9, done=4))
    result = run("retry", "--all")
    told = "stopped: 4 of 9 jobs are retried, the others are unchanged; run the command again to continue\n"
    assert (result.exit_code, result.stderr) == (130, told)
    assert answers.asked[-1][0] == "stop bulk act"


def test_interrupt_before_the_act_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    Answers(monkeypatch, KeyboardInterrupt(), NotFound("no"))
    result = run("retry", "--all")
    assert (result.exit_code, result.stderr.startswith("stopped: no job is retried")) == (130, True)


def test_restart_of_the_broker_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    Answers(monkeypatch, view(of=9, done=4, over=False), NotFound("no"))
    result = run("retry", "--all")
    assert result.exit_code == 1
    assert "the broker has been restarted: at least 4 of 9 jobs are retried; run the command again" in result.stderr


def test_page_is_printed_after_the_next_is_fetched() -> None:
    """A bug: a program behind `dragoman jobs --json` deleted the job after which the list was to continue."""
    events: list[str] = []

    def pages() -> Any:
        for number in range(3):
            events.append(f"fetch {number}")
            yield [number]

    for page in one_ahead(pages()):
        events.append(f"print {page[0]}")  # type: ignore[str-format]
    assert events == ["fetch 0", "fetch 1", "print 0", "fetch 2", "print 1", "print 2"]


# -------------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-18T03:00:00Z", MOMENT),
        ("2026-11-18T04:00:00+01:00", MOMENT),
        ("90s", MOMENT - timedelta(seconds=90)),
        ("30min", MOMENT - timedelta(minutes=30)),
        ("1.5 h", MOMENT - timedelta(hours=1.5)),
        ("7d", MOMENT - timedelta(days=7)),
    ],
)
def test_moment_is_a_time_or_an_age(text: str, moment: datetime) -> None:
    assert moment_of(text, MOMENT) == moment


def test_time_without_a_zone_is_local() -> None:
    assert moment_of("2026-11-18 03:00") == datetime(2026, 11, 18, 3).astimezone()


@pytest.mark.parametrize("text", ["", "soon", "3", "9999999999d", "2026-13-01"])
def test_other_texts_are_no_time(text: str) -> None:
    result = run("retry", "--all", "--since", text)
    assert (result.exit_code, "must be a time such as 2026-11-18T03:00:00Z, or an age" in result.stderr) == (2, True)
