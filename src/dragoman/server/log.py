"""Structured logs on standard error: readable text on a terminal, JSON lines otherwise."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from datetime import datetime
from typing import Any, TextIO, cast

import structlog

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class LossyStream:
    """Drops lines that cannot be written (a full disk, a closed pipe), so that the broker continues."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._out.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._out.flush()


def make_log(
    kind: str = "auto", level: str = "info", stream: TextIO | None = None
) -> structlog.typing.FilteringBoundLogger:
    """Make a log: `human` is text with local times, `json` is JSON with times in UTC, `auto` is text on a terminal,
    else JSON. Text is coloured on a terminal, unless NO_COLOR is set."""
    out = stream if stream is not None else sys.stderr
    is_human = kind == "human" or (kind == "auto" and out.isatty())
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=out.isatty() and not os.environ.get("NO_COLOR"))
        if is_human
        else structlog.processors.JSONRenderer(default=repr)
    )
    logger: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
        structlog.WriteLogger(cast(TextIO, LossyStream(out))),
        processors=[
            structlog.processors.add_log_level,
            _add_local_time if is_human else structlog.processors.TimeStamper(fmt="iso", utc=True),
            _traceback_as_text,
            _escape,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
    )
    return logger


def starts_in_json(kind: str) -> bool:
    """True if the lines at the start of a broker are JSON, too: sentences on standard output would stand among the JSON
    lines of the log if that is `json`, or if both streams are the same file or pipe."""
    if kind != "auto" or sys.stdout.isatty():
        return kind == "json"
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (OSError, ValueError):  # one of them has no descriptor, as in a test
        return False


def _add_local_time(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    event["timestamp"] = datetime.now().astimezone().isoformat(timespec="milliseconds")
    return event


def _traceback_as_text(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    error = event.pop("exception", None)
    if isinstance(error, BaseException):
        event["traceback"] = "".join(traceback.format_exception(error))
    return event


def _escape(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escape control characters, because names come from outside and lines may go to a terminal (T14)."""
    for key, value in event.items():
        if isinstance(value, str) and key != "traceback" and not value.isprintable():
            event[key] = value.encode("unicode_escape").decode("ascii")
    return event
