"""`dragoman workers`: who does the jobs."""

from __future__ import annotations

import click

from dragoman.cli.client import connect_option, json_option, perform
from dragoman.cli.tables import print_json, print_table, span
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
    """List the workers of every dialect, and what each is at.

    SILENT is how long ago it was last heard of, LEASE how long it may be silent before it is believed dead.
    """
    found = perform(url, WORKERS, EmptyRequest()).workers
    if as_json:
        print_json(*found)
        return
    rows = [
        (
            each.id,
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
    print_table(titles, rows, "There are no workers. `dragoman worker --help` tells how to start one.")
