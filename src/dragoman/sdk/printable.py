"""Escapes control characters in untrusted text before it reaches a terminal (T14)."""

from __future__ import annotations

import logging
import sys
from datetime import datetime
from typing import Final

from dragoman.sdk.current_job import current_job

MOST_CHARACTERS: Final = 1 << 18  # of a log line with its traceback


def printable(text: object, kept: str = "\n\t") -> str:
    """Escape every character that is not printable, except those in `kept`."""
    raw = str(text)
    if raw.isprintable():
        return raw
    return "".join(each if each.isprintable() or each in kept else _escaped(each) for each in raw)


def _shortened(line: str) -> str:
    """Return a log line without its middle if it is too long: escaping 60 MB would hold up the worker for seconds."""
    if len(line) <= MOST_CHARACTERS:
        return line
    half = MOST_CHARACTERS // 2
    return f"{line[:half]}... ({len(line) - 2 * half} characters left out) ...{line[-half:]}"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


class PrintableFormatter(logging.Formatter):
    """Formats log lines without control characters, because a failure may quote a caller's payload. The line of a
    handler has the id of its job before the message."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(_shortened(super().format(record)))

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """The local time in ISO 8601, with its offset."""
        return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")

    def formatMessage(self, record: logging.LogRecord) -> str:
        job = current_job.get()
        if job:
            record.message = f"job {job}: {record.message}"
        return super().formatMessage(record)


def log_to_stderr(level: int | str, *, force: bool = False) -> None:
    """Configure a worker's logging to standard error, unless logging is already configured; `force`: in any case."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=force)
