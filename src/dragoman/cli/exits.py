"""Exit codes, and how a command ends with one."""

from __future__ import annotations

from typing import NoReturn

import click

DONE = 0
FAILED = 1  # failed, lost, cancelled or refused
USAGE = 2  # usage or configuration
UNREACHABLE = 3
TIMED_OUT = 4
TAKEN = 73
DISK = 74


def give_up(message: str, code: int) -> NoReturn:
    click.echo(f"dragoman: {message}", err=True)
    raise click.exceptions.Exit(code)
