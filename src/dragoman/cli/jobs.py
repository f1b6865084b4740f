"""`dragoman jobs`: list or count jobs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

import click
from msgspec.structs import asdict

from dragoman.cli.broker_column import note_unanswered, noted, with_brokers
from dragoman.cli.client import connect_option, connected, json_option, perform
from dragoman.cli.request_options import given, request_options
from dragoman.cli.tables import age, print_facts, print_json, print_table
from dragoman.operations.list_schemas import JobCountsRequest, ListJobsRequest
from dragoman.operations.schemas import JobView
from dragoman.operations.table import JOB_COUNTS, JOBS

A_SCREEN = 20


@click.command(
    epilog="""\b
Examples:
  dragoman jobs
  dragoman jobs --service resize --state waiting
  dragoman jobs --kind background --undone --text "out of memory"
  dragoman jobs --quarantined --json | jq -r .id | dragoman retry -
  dragoman jobs --counts
""",
)
@connect_option
@request_options(ListJobsRequest, "service", "state", "outcome", "kind", "caller", "worker", "text", "reason")
@request_options(ListJobsRequest, "since", "until", "undone", "group", "parent")
@click.option("--quarantined", is_flag=True, help="Only jobs in quarantine, which `dragoman retry` retries.")
@click.option("--limit", type=click.IntRange(min=1), help="Number of jobs, at most.  [default: 20, or all with --json]")
@click.option("--counts", is_flag=True, help="Print the numbers of jobs by state instead, of one --service or of all.")
@json_option
def jobs(url: str | None, limit: int | None, counts: bool, as_json: bool, **options: Any) -> None:
    """List jobs, newest first.

    If there are more jobs, standard error has a line about it.
    """
    filters = given({**options, "quarantined": options["quarantined"] or None})
    if counts:
        if limit is not None or filters.keys() - {"service"}:
            raise click.UsageError("--counts can be combined with --service only.")
        _print_counts(url, filters.get("service"), as_json)
        return
    if limit is None and not as_json:
        limit = A_SCREEN
    request = ListJobsRequest(**filters, limit=limit + 1 if limit is not None else sys.maxsize)
    with connected(url) as client:
        found = chain.from_iterable(one_ahead(map(noted, client.pages(JOBS, request))))
        listed = islice(found, limit)
        if as_json:
            for each in listed:
                print_json(each)
        else:
            _print_rows(listed)
        has_more = next(found, None) is not None
    if has_more:
        click.echo(f"There are more than these {limit}: --limit shows them.", err=True)


def one_ahead(pages: Iterable[list[Any]]) -> Iterator[list[Any]]:
    """Yield each page after the next one is fetched. A program that reads these ids may delete their jobs, and a list
    cannot continue after a job that is gone."""
    before: list[Any] | None = None
    for page in pages:
        if before is not None:
            yield before
        before = page
    if before is not None:
        yield before


def _print_rows(jobs: Iterable[JobView]) -> None:
    found = list(jobs)
    rows = [
        (
            each.id,
            each.service,
            each.outcome or each.state,
            age(each.created),
            len(each.attempts),
            each.reason,
        )
        for each in found
    ]
    titles = ("JOB", "SERVICE", "STATE", "AGE", "ATTEMPTS", "REASON")
    print_table(*with_brokers(titles, rows, [each.broker for each in found]), "There are no such jobs.", fits=True)


def _print_counts(url: str | None, service: str | None, as_json: bool) -> None:
    view = perform(url, JOB_COUNTS, JobCountsRequest(service=service))
    if as_json:
        print_json(view)
    else:
        counts = {name: count for name, count in asdict(view).items() if not name.startswith("unanswered")}
        print_facts(("not done" if name == "undone" else name, count) for name, count in counts.items())
    note_unanswered(view.unanswered, view.unanswered_shards)
