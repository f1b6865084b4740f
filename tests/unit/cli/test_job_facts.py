"""The facts of one job, as `dragoman job` prints them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from command_runner import command_runner
from dragoman import Client
from dragoman.cli import dragoman
from dragoman.operations.list_schemas import FindJobRequest
from dragoman.operations.schemas import JobView, PayloadView, State

ID = "0197f3a2c4d87b12a9e05c61f38d2b74"


def view(state: State = "running", key: str | None = None) -> JobView:
    return JobView(
        id=ID,
        service="resize",
        state=state,
        outcome=None,
        reason="",
        background=True,
        quarantined=False,
        priority=5,
        attempts=[],
        max_attempts=3,
        created=datetime.now(UTC),
        key=key,
        progress=PayloadView(size=2, kind="text", text="40"),
    )


def shown(monkeypatch: pytest.MonkeyPatch, job: JobView) -> dict[str, str]:
    monkeypatch.setattr(Client, "operation", lambda *_: job)
    ran = command_runner().invoke(dragoman, ["job", ID])
    assert ran.exit_code == 0, ran.output
    return dict(re.split("  +", line, maxsplit=1) for line in ran.stdout.splitlines())


def test_a_key_is_shown_if_the_caller_chose_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, view(key="order-17"))["key"] == "order-17"
    assert "key" not in shown(monkeypatch, view(key=None))


@pytest.mark.parametrize(
    ("facts", "name", "text"),
    [
        ({"unique": "waiting", "holds_key": True}, "key", "nightly (unique until it starts)"),
        ({"unique": "unfinished", "holds_key": False}, "key", "nightly (unique until it ends; not any more)"),
        ({"keep": "forever"}, "kept", "until it is deleted"),
        ({"keep": 0.0}, "kept", "not at all"),
        ({"keep": 7_200.0}, "kept", "for 2 h after its end"),
        ({"keep": 60.0, "kept_until": datetime(2026, 1, 2, tzinfo=UTC)}, "kept", "until 2026-01-02T00:00:00.000Z"),
    ],
)
def test_key_and_keeping_of_a_job_are_shown(
    monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any], name: str, text: str
) -> None:
    assert shown(monkeypatch, replace(view(key="nightly"), **facts))[name] == text


def test_a_job_is_named_by_its_id_or_by_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def answer(client: object, row: object, request: Any, payload: bytes) -> JobView:
        asked.append(request)
        return view()

    monkeypatch.setattr(Client, "operation", answer)
    assert command_runner().invoke(dragoman, ["job", "--key", "k", "--service", "s", "--owner", "web"]).exit_code == 0
    assert asked == [FindJobRequest(service="s", key="k", owner="web")]
    for words in (
        [],
        ["--key", "k"],
        ["--service", "s", ID],
        [ID, "--key", "k", "--service", "s"],
        [ID, "--owner", "w"],
    ):
        assert command_runner().invoke(dragoman, ["job", *words]).exit_code == 2, words


@pytest.mark.parametrize(
    ("state", "name"), [("running", "progress"), ("delayed", "last progress"), ("waiting", "last progress")]
)
def test_progress_of_an_ended_attempt_is_called_the_last(
    monkeypatch: pytest.MonkeyPatch, state: State, name: str
) -> None:
    """A job that waited for its retry showed the progress of the attempt that had failed."""
    facts = shown(monkeypatch, view(state))
    assert {each: facts[each] for each in facts if "progress" in each} == {name: "2 bytes of text: 40"}
