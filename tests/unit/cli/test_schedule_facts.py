"""Facts of a schedule that `dragoman schedule show` prints."""

from __future__ import annotations

from typing import Any

import pytest

from command_runner import command_runner
from dragoman.cli import dragoman, schedule
from dragoman.operations.schemas import ScheduleView


@pytest.mark.parametrize(
    ("fields", "facts"),
    [
        ({}, {"next": "paused"}),
        (
            {"owner": "web", "paused_reason": "web may not call 's'"},
            {"owner": "web", "next": "paused by the broker: web may not call 's'"},
        ),
    ],
)
def test_show_names_the_owner_and_the_reason_of_a_pause(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, str], facts: dict[str, str]
) -> None:
    """R144. The owner of this machine is not shown."""
    view = ScheduleView(
        name="n",
        service="s",
        cron=None,
        every=5.0,
        timezone="UTC",
        overlap=False,
        paused=True,
        next=None,
        last=None,
        last_job=None,
        runs=0,
        skipped=0,
        **fields,
    )

    def perform(*_: Any) -> ScheduleView:
        return view

    monkeypatch.setattr(schedule, "perform", perform)
    ran = command_runner().invoke(dragoman, ["schedule", "show", "n"])
    shown = dict(line.split(maxsplit=1) for line in ran.output.splitlines())
    assert {name: shown.get(name) for name in ("owner", "next")} == {"owner": None} | facts
