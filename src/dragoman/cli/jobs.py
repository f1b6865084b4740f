"""`dragoman jobs`: a list of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import click

from dragoman.cli.http import connect_option, give_up_on, json_option, path, request
from dragoman.cli.request_options import request_options
from dragoman.cli.tables import age, print_json, print_table
from dragoman.operations.schemas import ListJobsRequest

A_PAGE = 1_000
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
@click.option("--quarantined", is_flag=True, help="Only jobs in quarantine, which `dragoman retry` tries again.")
@click.option(
    "--limit", type=click.IntRange(min=1), help="List so many jobs at most.  [default: 20, or all with --json]"
)
@json_option
def jobs(
    url: str,
    service: str | None,
    state: str | None,
    outcome: str | None,
    quarantined: bool,
    limit: int | None,
    as_json: bool,
) -> None:
    """List jobs, the newest first.

    If there are more jobs than were listed, a line on standard error says so.
    """
    query = {
        "service": service,
        "state": state,
        "outcome": outcome,
        "quarantined": "true" if quarantined else None,
    }
    if limit is None and not as_json:
        limit = A_SCREEN
    pages = Pages(url, query, limit)
    if as_json:
        for page in pages:
            print_json(*page)
    else:
        _print_rows([each for page in pages for each in page])
    if pages.has_more:
        click.echo(f"There are more than these {limit}: --limit shows them.", err=True)


class Pages:
    """The jobs that match a query, page by page, up to a limit."""

    def __init__(self, url: str, query: dict[str, str | None], limit: int | None) -> None:
        self._url = url
        self._query = query
        self._left = limit if limit is not None else inf
        self.has_more = False  # there were more than the limit allows

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        after = None
        while True:
            page = {**self._query, "after": after, "limit": int(min(self._left, A_PAGE))}
            answer = request(self._url, "GET", path("jobs"), query=page)
            if answer.status >= 400:
                give_up_on(answer)
            view = answer.json()
            yield view["jobs"]
            self._left -= len(view["jobs"])
            after = view["after"]
            if after is None or self._left <= 0:
                break
        self.has_more = after is not None


def _print_rows(jobs: list[dict[str, Any]]) -> None:
    rows = [
        (
            each["id"],
            each["service"],
            each["outcome"] or each["state"],
            age(each["created"]),
            len(each["attempts"]),
            each["reason"],
        )
        for each in jobs
    ]
    print_table(("JOB", "SERVICE", "STATE", "AGE", "ATTEMPTS", "REASON"), rows, "There are no such jobs.")
