"""Exit codes, error messages, and the end of a command that failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from dragoman.sdk.printable import printable

DONE = 0
FAILED = 1  # failed, lost, cancelled or refused
USAGE = 2  # usage or configuration
UNREACHABLE = 3
TIMED_OUT = 4
TAKEN = 73
DISK = 74
INTERRUPTED = 130


def warn(message: str, *, kept: str = "") -> None:
    """Prints an error to standard error, without anything that a terminal would obey (T14), in one line: what peers say
    must not look like a line of ours. `kept`: characters that may stand as they are, where all of it is ours."""
    click.echo(f"dragoman: {printable(message, kept)}", err=True)


def unwritable(error: OSError) -> str:
    """The message for output that cannot be written, such as to a full disk."""
    return f"cannot write to standard output: {error.strerror}"


def fail(message: str, code: int, *, kept: str = "") -> NoReturn:
    """Prints an error and ends the command with an exit code."""
    warn(message, kept=kept)
    raise click.exceptions.Exit(code)


@contextmanager
def ending_errors() -> Iterator[None]:
    """An error of the SDK ends the command, with its sentence and its exit code."""
    from dragoman.sdk.errors import DragomanError

    try:
        yield
    except (DragomanError, ValueError) as error:
        fail(sentence_of(error), code_of(error))


def code_of(error: Exception) -> int:
    """The exit code for an error of the SDK."""
    from dragoman.sdk.errors import BrokerUnavailable, JobTimeout, Unsupported

    if isinstance(error, BrokerUnavailable):
        return UNREACHABLE
    if isinstance(error, JobTimeout):
        return TIMED_OUT
    return USAGE if isinstance(error, ValueError | Unsupported) else FAILED


def sentence_of(error: Exception) -> str:
    """The error's own sentence. If nobody listens at the address, it says what to do next."""
    from dragoman.sdk.errors import BrokerUnavailable

    if isinstance(error, BrokerUnavailable) and isinstance(error.__cause__, OSError):
        return f"{error}. Start a broker with `dragoman serve`, or name its address with --connect"
    return str(error)
