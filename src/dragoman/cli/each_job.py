"""The same request for several jobs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from dragoman.cli.client import connected
from dragoman.cli.exit_codes import DONE, code_of, sentence_of, warn

if TYPE_CHECKING:
    from dragoman.sdk.client import Client


def perform_for_each(jobs: Sequence[str], url: str | None, act: Callable[[Client[bytes], str], str]) -> None:
    """Print the id that `act` returns, for a client and the id of a job. A problem with one job is printed, and the
    others have their turn; a broker that cannot be reached is a problem with all of them."""
    from dragoman.sdk.errors import BrokerUnavailable, DragomanError

    code = DONE
    with connected(url) as client:
        for job in _ids(jobs):
            try:
                click.echo(act(client, job))
            except BrokerUnavailable:
                raise
            except (DragomanError, ValueError) as error:
                warn(f"job {job}: {sentence_of(error)}")
                code = code or code_of(error)
    raise click.exceptions.Exit(code)


def _ids(jobs: Sequence[str]) -> Iterator[str]:
    for job in jobs:
        if job == "-":
            yield from (line.strip() for line in sys.stdin if line.strip())
        else:
            yield job
