"""Job ids as users type them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from dragoman.cli.exit_codes import USAGE, fail

Command = TypeVar("Command", bound=Callable[..., Any])


def job_argument(command: Command) -> Command:
    """Add the argument JOB. A value that is not a job's id ends the command."""
    return click.argument("job", callback=_checked)(command)


def optional_job_argument(command: Command) -> Command:
    """Add the argument JOB, which may be left out."""
    return click.argument("job", required=False, callback=_checked)(command)


def check_job_id(text: str) -> str:
    """Return the id. Raises ValueError."""
    if not re.fullmatch("[0-9a-f]{32}", text):
        raise ValueError(
            f"job {text!r}: a job's id has 32 lower-case hex digits, as `dragoman enqueue` and `dragoman jobs` print it"
        )
    return text


def _checked(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return check_job_id(text)
    except ValueError as error:
        fail(str(error), USAGE)
