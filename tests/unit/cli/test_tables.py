"""Tables of commands: times, sizes and widths."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dragoman.cli import tables
from dragoman.cli.terminal import text_width
from dragoman.sdk.address import read_value


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


JOBS = [("0197f3a2c4d87b12a9e05c61f38d2b74", "resize", "failed", "3 min", 3, "ValueError: 画像 cannot be read")]
JOB_TITLES = ("JOB", "SERVICE", "STATE", "AGE", "ATTEMPTS", "REASON")


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        ("200", "0197f3a2c4d87b12a9e05c61f38d2b74  resize   failed  3 min         3  ValueError: 画像 cannot be read"),
        ("85", "0197f3a2c4d87b12a9e05c61f38d2b74  resize   failed  3 min         3  ValueError: 画像…"),
        ("84", "0197f3a2c4d87b12a9e05c61f38d2b74  resize   failed  3 min         3  ValueError: 画…"),
        ("70", "0197f3a2c4d87b12a9e05c61f38d2b74  resize  failed  3 min     3  ValueE…"),
        ("20", "0197f3a2c4d87b12a9e05c61f38d2b74  res…  fai…  3 m…     3  Val…"),
    ],
)
def test_a_list_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: str, row: str
) -> None:
    monkeypatch.setattr(tables, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", columns)
    tables.print_table(JOB_TITLES, JOBS, "", fits=True)
    titles, shown = capsys.readouterr().out.splitlines()
    assert shown == row
    assert int(columns) == 20 or max(map(text_width, (titles, shown))) <= int(columns)


def test_a_title_is_shortened_before_the_cells_below_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    tables.print_table(("SERVICE", "WAITING", "SINCE START: DONE", ""), [("thumbnails", 12, 345, "")], "", fits=True)
    assert capsys.readouterr().out.splitlines() == ["SERVICE     WAITING  SINCE …", "thumbnails       12      345"]


def test_a_list_in_a_pipe_and_a_table_of_one_job_are_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    tables.print_table(JOB_TITLES, JOBS, "", fits=True)
    monkeypatch.setattr(tables, "is_terminal", lambda: True)
    tables.print_table(JOB_TITLES, JOBS, "")
    assert capsys.readouterr().out.count("ValueError: 画像 cannot be read\n") == 2


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0"), (128, "128"), (1024, "1KiB"), (64 << 20, "64MiB"), (10 << 30, "10GiB"), (1_000_000, "1000000")],
)
def test_a_size_is_written_as_settings_accept_it(size: int, text: str) -> None:
    assert tables.size_text(size) == text
    assert read_value(int, text) == size


def test_columns_are_aligned_also_with_wide_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers, also the last digits of one, go to the right. No colours: this is no terminal."""
    rows = [("7297", "画像", "done", 5), ("17", "resize", "failed", 12)]
    tables.print_table(("WORKER", "SERVICE", "STATE", "JOBS"), rows, "")
    assert capsys.readouterr().out.splitlines() == [
        "WORKER  SERVICE  STATE   JOBS",
        "  7297  画像     done       5",
        "    17  resize   failed    12",
    ]


def test_sizes_are_rounded() -> None:
    sizes = (0, 999, 1_000, 1_536, 65_536, 1 << 30, 5 << 40)
    assert [tables.rounded_size(each) for each in sizes] == [
        "0 B",
        "999 B",
        "1.0 KiB",
        "1.5 KiB",
        "64 KiB",
        "1.0 GiB",
        "5.0 TiB",
    ]
