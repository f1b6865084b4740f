"""`dragoman cancel`: cancel jobs."""

from __future__ import annotations

import click

from dragoman.cli.client import connect_option
from dragoman.cli.each_job import perform_for_each
from dragoman.operations.schemas import JobRef
from dragoman.operations.table import CANCEL


@click.command(
    epilog="""\b
Examples:
  dragoman cancel 0197f3a2c4d87b12a9e05c61f38d2b74
  dragoman jobs --service resize --state delayed --json | jq -r .id | dragoman cancel -
""",
)
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@connect_option
def cancel(jobs: tuple[str, ...], url: str | None) -> None:
    """Cancel jobs that have not ended, and print their ids.

    JOB is a job's id; `-` reads ids from standard input, one a line. A job that has ended already is an error; the
    others are still cancelled.
    """
    perform_for_each(jobs, url, "cancelling", lambda client, job: client.operation(CANCEL, JobRef(id=job)).id)
