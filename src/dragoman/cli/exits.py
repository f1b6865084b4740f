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


def complain(message: str) -> None:
    """Prints an error to standard error, in one line and without anything that a terminal would obey (T14)."""
    click.echo(f"dragoman: {plain(message)}", err=True)


def give_up(message: str, code: int) -> NoReturn:
    """Prints an error and ends the command with an exit code."""
    complain(message)
    raise click.exceptions.Exit(code)
