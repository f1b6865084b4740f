"""`dragoman cancel`: cancel jobs."""

from __future__ import annotations

from typing import Any

import click

from dragoman.cli.bulk import BulkCommand, bulk_options, check_choice, perform_for_all, yes_option
from dragoman.cli.client import connect_option
from dragoman.cli.each_job import perform_for_each
from dragoman.cli.request_options import given
from dragoman.operations.bulk_schemas import CancelJobsRequest
from dragoman.operations.schemas import JobRef
from dragoman.operations.table import CANCEL, CANCEL_JOBS

BULK = BulkCommand(CANCEL_JOBS, "Cancel", "cancelling", "cancelled", confirms=True)


@click.command(
    epilog="""\b
Examples:
  dragoman cancel 0197f3a2c4d87b12a9e05c61f38d2b74
  dragoman cancel --all --service resize --state delayed --dry-run
  dragoman jobs --service resize --state delayed --json | jq -r .id | dragoman cancel -
""",
)
@click.argument("jobs", nargs=-1, metavar="[JOB...]")
@connect_option
@yes_option
@bulk_options(CancelJobsRequest, "state")
def cancel(jobs: tuple[str, ...], url: str | None, for_all: bool, yes: bool, as_json: bool, **options: Any) -> None:
    """Cancel jobs that have not ended, and print their ids.

    JOB is a job's id; `-` reads ids from standard input, one a line. A job that has ended already is an error; the
    others are still cancelled. With --all, the jobs that match the filters are cancelled, and their number is printed.
    """
    check_choice(jobs, for_all, {**options, "yes": yes or None, "json": as_json or None})
    if for_all:
        request = CancelJobsRequest(all=True, **given(options))
        perform_for_all(BULK, request, url, is_confirmed=yes, as_json=as_json)
    else:
        perform_for_each(jobs, url, "cancelling", lambda client, job: client.operation(CANCEL, JobRef(id=job)).id)
