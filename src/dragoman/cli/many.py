"""The same asked of several jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from dragoman.cli.exits import complain
from dragoman.cli.http import exit_code, problem_of, request


def ask_each(jobs: Sequence[str], url: str, method: str, path: Callable[[str], str]) -> None:
    """Print the id in each answer. What goes wrong with one is said, and the others have their turn."""
    code = 0
    for job in jobs:
        answer = request(url, method, path(job))
        if answer.status < 400:
            click.echo(answer.json()["id"])
        else:
            complain(f"job {job}: {problem_of(answer)}")
            code = code or exit_code(answer)
    raise click.exceptions.Exit(code)
