"""`dragoman workers`: list workers."""

from __future__ import annotations

import click

from dragoman.cli.client import connect_option, json_option, perform
from dragoman.cli.tables import print_json, print_table, span
from dragoman.cli.worker_ids import short_ids
from dragoman.operations.schemas import EmptyRequest
from dragoman.operations.table import WORKERS


@click.command(
    epilog="""\b
Examples:
  dragoman workers
  dragoman workers --json | jq -r 'select(.state == "idle") | .id'
""",
)
@connect_option
@json_option
def workers(url: str | None, as_json: bool) -> None:
    """List the workers of every dialect, with the number of their jobs.

    WORKER is the last digits of the worker's number, enough for `dragoman drain` and `dragoman show-worker`; --json
    prints the whole number. SILENT is the time since its last message. One that is silent for LEASE counts as dead.
    """
    found = perform(url, WORKERS, EmptyRequest()).workers
    if as_json:
        print_json(*found)
        return
    names = short_ids(each.id for each in found)
    rows = [
        (
            names[each.id],
            each.name,
            each.dialect,
            each.state,
            f"{len(each.running)}/{each.capacity}",
            span(each.silent),
            span(each.lease) if each.lease is not None else "",
            ", ".join(each.services),
        )
        for each in found
    ]
    titles = ("WORKER", "NAME", "DIALECT", "STATE", "JOBS", "SILENT", "LEASE", "SERVICES")
    print_table(titles, rows, "There are no workers. `dragoman worker --help` tells how to start one.", fits=True)
