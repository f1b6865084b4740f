"""One operation for several jobs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from dragoman.cli.client import connected
from dragoman.cli.exit_codes import DONE, code_of, sentence_of, warn
from dragoman.cli.job_ids import check_job_id
from dragoman.cli.progress_bar import ProgressBar
from dragoman.cli.terminal import is_terminal

if TYPE_CHECKING:
    from dragoman.sdk.client import Client


def perform_for_each(
    jobs: Sequence[str], url: str | None, label: str, act: Callable[[Client[bytes], str], str]
) -> None:
    """Print the id that `act` returns for a client and the id of a job. An error with one job is printed, and the next
    job follows. An unreachable broker ends the command. `label` is that of the progress bar, which is drawn while the
    ids go into a file or a pipe."""
    from dragoman.sdk.errors import BrokerUnavailable, DragomanError

    code = DONE
    total = 0 if "-" in jobs else len(jobs)
    with ProgressBar(label, "jobs") as bar, connected(url) as client:
        bar.is_shown = bar.is_shown and not is_terminal()
        for number, job in enumerate(_ids(jobs), 1):
            try:
                click.echo(act(client, check_job_id(job)))
            except BrokerUnavailable:
                raise
            except (DragomanError, ValueError) as error:
                bar.clear()
                sentence = sentence_of(error)
                warn(sentence if job in sentence else f"job {job}: {sentence}")
                code = code or code_of(error)
            bar.update(number, total)
    raise click.exceptions.Exit(code)


def _ids(jobs: Sequence[str]) -> Iterator[str]:
    for job in jobs:
        if job == "-":
            yield from (line.strip() for line in sys.stdin if line.strip())
        else:
            yield job
