"""Exit codes, error messages, and the end of a command that failed."""

from __future__ import annotations

from typing import NoReturn

import click

from dragoman.cli.tables import plain

DONE = 0
FAILED = 1  # failed, lost, cancelled or refused
USAGE = 2  # usage or configuration
UNREACHABLE = 3
TIMED_OUT = 4
TAKEN = 73
DISK = 74
INTERRUPTED = 130


def complain(message: str) -> None:
    """Prints an error to standard error, in one line and without anything that a terminal would obey (T14)."""
    click.echo(f"dragoman: {plain(message)}", err=True)


def unwritable(error: OSError) -> str:
    """The message for output that cannot be written, such as to a full disk."""
    return f"cannot write to standard output: {error.strerror}"


def give_up(message: str, code: int) -> NoReturn:
    """Prints an error and ends the command with an exit code."""
    complain(message)
    raise click.exceptions.Exit(code)
