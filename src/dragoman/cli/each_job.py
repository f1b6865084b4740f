"""The same request for several jobs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence

import click

from dragoman.cli.exit_codes import warn
from dragoman.cli.http import exit_code, problem_of, request


def ask_each(jobs: Sequence[str], url: str, method: str, path: Callable[[str], str]) -> None:
    """Print the id in each answer. A problem with one job is printed, and the others have their turn."""
    code = 0
    for job in _ids(jobs):
        answer = request(url, method, path(job))
        if answer.status < 400:
            click.echo(answer.json()["id"])
        else:
            warn(f"job {job}: {problem_of(answer)}")
            code = code or exit_code(answer)
    raise click.exceptions.Exit(code)


def _ids(jobs: Sequence[str]) -> Iterator[str]:
    for job in jobs:
        if job == "-":
            yield from (line.strip() for line in sys.stdin if line.strip())
        else:
            yield job
