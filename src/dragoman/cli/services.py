"""`dragoman services`: list services."""

from __future__ import annotations

import click

from dragoman.cli.client import connect_option, json_option, perform
from dragoman.cli.tables import print_json, print_table, span
from dragoman.operations.schemas import EmptyRequest
from dragoman.operations.table import SERVICES


@click.command(
    epilog="""\b
Examples:
  dragoman services
  dragoman services --json | jq -r 'select(.workers == 0) | .name'
""",
)
@connect_option
@json_option
def services(url: str | None, as_json: bool) -> None:
    """List services with their queues and workers.

    OLDEST is the waiting time of the job at the head of the queue. DONE and NOT DONE count the jobs that have ended
    since the broker started.
    """
    found = perform(url, SERVICES, EmptyRequest()).services
    if as_json:
        print_json(*found)
        return
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
        for each in sorted(found, key=lambda each: each.name)
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
    print_table(
        titles, rows, "There are no services yet: no worker offers one, and no job is there for one.", fits=True
    )
