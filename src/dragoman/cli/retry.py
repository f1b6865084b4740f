"""`dragoman retry`: retry jobs in quarantine."""

from __future__ import annotations

from typing import Any

import click

from dragoman.cli.bulk import BulkCommand, bulk_options, check_choice, perform_for_all
from dragoman.cli.client import connect_option
from dragoman.cli.each_job import perform_for_each
from dragoman.cli.request_options import given
from dragoman.operations.bulk_schemas import RetryJobsRequest
from dragoman.operations.table import RETRY_JOBS

BULK = BulkCommand(RETRY_JOBS, "Retry", "retrying", "retried")


@click.command(
    epilog="""\b
Examples:
  dragoman retry 0197f3a2c4d87b12a9e05c61f38d2b74
  dragoman retry --all --service resize --reason "out of memory" --since 2h --dry-run
  dragoman jobs --quarantined --json | jq -r .id | dragoman retry -
""",
)
@click.argument("jobs", nargs=-1, metavar="[JOB...]")
@connect_option
@bulk_options(RetryJobsRequest, "outcome")
def retry(jobs: tuple[str, ...], url: str | None, for_all: bool, as_json: bool, **options: Any) -> None:
    """Make a new job of each JOB in quarantine, and print the new ids.

    JOB is a job's id; `-` reads ids from standard input, one a line. A job that has used up its attempts is in
    quarantine: `dragoman jobs --quarantined` lists these. A job that is retried leaves the quarantine. With --all, the
    jobs in quarantine that match the filters are retried, and their number is printed.
    """
    check_choice(jobs, for_all, {**options, "json": as_json or None})
    if for_all:
        request = RetryJobsRequest(all=True, **given(options))
        perform_for_all(BULK, request, url, is_confirmed=True, as_json=as_json)
    else:
        perform_for_each(jobs, url, "retrying", lambda client, job: client.retry(job))
