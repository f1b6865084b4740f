"""Times in the tables of commands."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dragoman.cli import tables


@pytest.mark.parametrize(
    ("seconds", "ago", "age"),
    [(4, "4.0 s ago", "4.0 s"), (300, "5 min ago", "5 min"), (-4, "in 4.0 s", "0.0 s"), (-300_000, "in 3 d", "0.0 s")],
)
def test_a_moment_is_told_from_now(monkeypatch: pytest.MonkeyPatch, seconds: float, ago: str, age: str) -> None:
    """Past and future times were hard to tell apart."""
    now = 1_800_000_000.0
    monkeypatch.setattr(tables.time, "time", lambda: now)
    moment = datetime.fromtimestamp(now - seconds, UTC)
    assert (tables.ago(moment), tables.age(moment)) == (ago, age)


def test_columns_are_aligned_also_with_wide_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers, also the last digits of one, go to the right. No colours: this is no terminal."""
    rows = [("7297", "画像", "done", 5), ("17", "resize", "failed", 12)]
    tables.print_table(("WORKER", "SERVICE", "STATE", "JOBS"), rows, "")
    assert capsys.readouterr().out.splitlines() == [
        "WORKER  SERVICE  STATE   JOBS",
        "  7297  画像     done       5",
        "    17  resize   failed    12",
    ]
