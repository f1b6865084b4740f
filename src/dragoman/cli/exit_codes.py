"""Exit codes and error messages of commands."""

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
DAMAGED = 65  # something is left out of an export, or of its file
NOT_INSTALLED = 69  # the command needs a package of an extra, or a module that this system does not have
TAKEN = 73
DISK = 74
FORBIDDEN = 77
INTERRUPTED = 130


def warn(message: str, *, kept: str = "") -> None:
    """Print an error to standard error in one line, with control characters escaped (T14): text of peers must not look
    like a line of this program. `kept`: characters that are not escaped, for text that is not of peers."""
    click.echo(f"dragoman: {printable(message, kept)}", err=True)


def unwritable(error: OSError) -> str:
    """The message for output that cannot be written, such as to a full disk."""
    return f"cannot write to standard output: {error.strerror}"


def fail(message: str, code: int, *, kept: str = "") -> NoReturn:
    """Print an error and end the command with this exit code."""
    warn(message, kept=kept)
    raise click.exceptions.Exit(code)


@contextmanager
def ending_errors(url: str | None = None) -> Iterator[None]:
    """End the command on an error of the SDK, with the error's sentence and exit code. `url`: the value of
    --connect."""
    from dragoman.sdk.errors import DragomanError

    try:
        yield
    except (DragomanError, ValueError) as error:
        fail(sentence_of(error, url), code_of(error))


def code_of(error: Exception) -> int:
    """The exit code for an error of the SDK."""
    from dragoman.sdk.errors import BrokerUnavailable, Forbidden, JobTimeout, Unsupported

    if isinstance(error, BrokerUnavailable):
        return UNREACHABLE
    if isinstance(error, JobTimeout):
        return TIMED_OUT
    if isinstance(error, Forbidden):
        return FORBIDDEN
    return USAGE if isinstance(error, ValueError | Unsupported) else FAILED


def sentence_of(error: Exception, url: str | None = None) -> str:
    """The message of the error. If the address refuses connections, advice follows. The error of an address that was
    given with --connect names that option. `url`: its value."""
    from socket import gaierror

    from dragoman.sdk.address import AddressError
    from dragoman.sdk.errors import BrokerUnavailable

    if isinstance(error, BrokerUnavailable) and isinstance(error.__cause__, OSError):
        if isinstance(error.__cause__.__cause__, gaierror):
            return f"{error}. Correct the name of the host, or name another address with --connect"
        return f"{error}. Start a broker with `dragoman serve`, or name its address with --connect"
    return f"--connect: {error}" if url and isinstance(error, AddressError) else str(error)
