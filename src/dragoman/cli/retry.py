"""`dragoman retry`: retry jobs in quarantine."""

from __future__ import annotations

import click

from dragoman.cli.client import connect_option
from dragoman.cli.each_job import perform_for_each


@click.command(
    epilog="""\b
Examples:
  dragoman retry 0197f3a2c4d87b12a9e05c61f38d2b74
  dragoman jobs --quarantined --json | jq -r .id | dragoman retry -
""",
)
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@connect_option
def retry(jobs: tuple[str, ...], url: str | None) -> None:
    """Make a new job of each JOB in quarantine, and print the new ids.

    JOB is a job's id; `-` reads ids from standard input, one a line. A job that has used up its attempts is in
    quarantine: `dragoman jobs --quarantined` lists these. A job that is retried leaves the quarantine.
    """
    perform_for_each(jobs, url, "retrying", lambda client, job: client.retry(job))
