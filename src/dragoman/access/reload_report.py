"""The report of the last reload: a file in the data folder. By it a broker answers a command that sent it a signal."""

from __future__ import annotations

from pathlib import Path

import msgspec

from dragoman.access.private_files import write_file

FILE = "access-reload"


class ReloadReport(msgspec.Struct, frozen=True):
    """Result of a reload. `number` counts the reloads of one process; 0 is its start."""

    process: int
    number: int
    problems: list[str] = []
    added: list[str] = []
    removed: list[str] = []
    changed: list[str] = []
    disconnected: int = 0


def write_report(data: Path, report: ReloadReport) -> None:
    """Write it to the data folder. Raises OSError."""
    write_file(data / FILE, msgspec.json.encode(report))


def read_report(data: Path) -> ReloadReport | None:
    """Read it; None if there is none."""
    try:
        return msgspec.json.decode((data / FILE).read_bytes(), type=ReloadReport)
    except (OSError, msgspec.DecodeError):
        return None
