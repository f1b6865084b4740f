"""`dragoman jobs`: list jobs."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import chain, islice

import click

from dragoman.cli.client import connect_option, connected, json_option
from dragoman.cli.request_options import given, request_options
from dragoman.cli.tables import age, print_json, print_table
from dragoman.operations.schemas import JobView, ListJobsRequest
from dragoman.operations.table import JOBS

A_SCREEN = 20


@click.command(
    epilog="""\b
Examples:
  dragoman jobs
  dragoman jobs --service resize --state waiting
  dragoman jobs --quarantined --json | jq -r .id | dragoman retry -
""",
)
@connect_option
@request_options(ListJobsRequest, "service", "state", "outcome")
@click.option("--quarantined", is_flag=True, help="Only jobs in quarantine, which `dragoman retry` retries.")
@click.option("--limit", type=click.IntRange(min=1), help="Number of jobs, at most.  [default: 20, or all with --json]")
@json_option
def jobs(
    url: str | None,
    service: str | None,
    state: str | None,
    outcome: str | None,
    quarantined: bool,
    limit: int | None,
    as_json: bool,
) -> None:
    """List jobs, newest first.

    If there are more jobs, standard error has a line about it.
    """
    if limit is None and not as_json:
        limit = A_SCREEN
    request = ListJobsRequest(
        **given({"service": service, "state": state, "outcome": outcome, "quarantined": quarantined or None}),
        limit=limit + 1 if limit is not None else sys.maxsize,
    )
    with connected(url) as client:
        found = chain.from_iterable(client.pages(JOBS, request))
        listed = islice(found, limit)
        if as_json:
            for each in listed:
                print_json(each)
        else:
            _print_rows(listed)
        has_more = next(found, None) is not None
    if has_more:
        click.echo(f"There are more than these {limit}: --limit shows them.", err=True)


def _print_rows(jobs: Iterable[JobView]) -> None:
    rows = [
        (
            each.id,
            each.service,
            each.outcome or each.state,
            age(each.created),
            len(each.attempts),
            each.reason,
        )
        for each in jobs
    ]
    print_table(("JOB", "SERVICE", "STATE", "AGE", "ATTEMPTS", "REASON"), rows, "There are no such jobs.", fits=True)
