"""`dragoman services`: list services."""

from __future__ import annotations

from itertools import chain
from typing import Any

import click

from dragoman.cli.broker_column import noted, with_brokers
from dragoman.cli.client import connect_option, connected, json_option
from dragoman.cli.request_options import given, request_options
from dragoman.cli.tables import print_json, print_table, span
from dragoman.operations.list_schemas import ListServicesRequest
from dragoman.operations.table import SERVICES


@click.command(
    epilog="""\b
Examples:
  dragoman services
  dragoman services --sort need --limit 10
  dragoman services --json | jq -r 'select(.workers == 0) | .name'
""",
)
@connect_option
@request_options(ListServicesRequest, "sort", "text", "limit")
@json_option
def services(url: str | None, as_json: bool, **options: Any) -> None:
    """List services with their queues and workers.

    OLDEST is the waiting time of the job at the head of the queue. DONE and NOT DONE count the jobs that have ended
    since the broker started.
    """
    with connected(url) as client:
        pages = client.pages(SERVICES, ListServicesRequest(**given(options)))
        found = list(chain.from_iterable(map(noted, pages)))
    if as_json:
        print_json(*found)
        return
    found = found if options["sort"] else sorted(found, key=lambda each: each.name)
    rows = [
        (
            each.name,
            each.waiting,
            span(each.oldest) if each.waiting else "",
            each.delayed,
            each.running,
            each.workers,
            each.idle,
            each.ended.get("done", 0),
            sum(count for outcome, count in each.ended.items() if outcome != "done"),
            f"paused by {each.paused_by}" if each.paused else "",
        )
        for each in found
    ]
    titles = (
        "SERVICE",
        "WAITING",
        "OLDEST",
        "DELAYED",
        "RUNNING",
        "WORKERS",
        "IDLE",
        "SINCE START: DONE",
        "NOT DONE",
        "",
    )
    nothing = "There are no services yet: no worker offers one, and no job is there for one."
    table = with_brokers(titles, rows, [each.brokers for each in found])
    print_table(*table, "There are no such services." if options["text"] else nothing, fits=True)
