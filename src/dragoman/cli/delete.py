"""`dragoman delete`: delete ended jobs with their outcomes."""

from __future__ import annotations

from typing import Any

import click

from dragoman.cli.bulk import BulkCommand, bulk_options, check_choice, perform_for_all, yes_option
from dragoman.cli.client import connect_option
from dragoman.cli.each_job import perform_for_each
from dragoman.cli.request_options import given
from dragoman.operations.bulk_schemas import DeleteJobsRequest
from dragoman.operations.table import DELETE_JOBS

BULK = BulkCommand(DELETE_JOBS, "Delete", "deleting", "deleted", confirms=True)


@click.command(
    epilog="""\b
Examples:
  dragoman delete 0197f3a2c4d87b12a9e05c61f38d2b74
  dragoman delete --all --service report --outcome done --until 7d --dry-run
  dragoman jobs --service report --outcome done --json | jq -r .id | dragoman delete -
""",
)
@click.argument("jobs", nargs=-1, metavar="[JOB...]")
@connect_option
@yes_option
@bulk_options(DeleteJobsRequest, "outcome", "quarantined")
def delete(jobs: tuple[str, ...], url: str | None, for_all: bool, yes: bool, as_json: bool, **options: Any) -> None:
    """Delete ended jobs with their outcomes, and print their ids.

    JOB is a job's id; `-` reads ids from standard input, one a line. A job that has not ended is an error; the others
    are still deleted. An outcome that is kept for ever stays until it is deleted. With --all, the jobs that match the
    filters are deleted, and their number is printed.
    """
    check_choice(jobs, for_all, {**options, "yes": yes or None, "json": as_json or None})
    if for_all:
        request = DeleteJobsRequest(all=True, **given(options))
        perform_for_all(BULK, request, url, is_confirmed=yes, as_json=as_json)
    else:
        perform_for_each(jobs, url, "deleting", lambda client, job: client.delete(job))
