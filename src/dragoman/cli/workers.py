"""`dragoman workers`: list workers."""

from __future__ import annotations

from itertools import chain
from typing import Any

import click

from dragoman.cli.broker_column import note_unanswered, noted, with_brokers
from dragoman.cli.client import connect_option, connected, json_option, perform
from dragoman.cli.request_options import given, request_options
from dragoman.cli.tables import print_facts, print_json, print_table, span
from dragoman.cli.worker_ids import short_ids
from dragoman.operations.list_schemas import ListWorkersRequest, WorkerStateName
from dragoman.operations.schemas import EmptyRequest
from dragoman.operations.table import FLEET, WORKERS

NO_WORKERS = "There are no workers. `dragoman worker --help` tells how to start one."
FILTERS = ("state", "dialect", "service", "text")


@click.command(
    epilog="""\b
Examples:
  dragoman workers
  dragoman workers --state busy --sort slow --limit 10
  dragoman workers --json | jq -r 'select(.state == "idle") | .id'
""",
)
@connect_option
@request_options(ListWorkersRequest, *FILTERS, "sort", "limit")
@click.option("--fleet", is_flag=True, help="Print one letter a worker instead: its state, in the order of joining.")
@json_option
def workers(url: str | None, as_json: bool, fleet: bool, **options: Any) -> None:
    """List the workers of every dialect, with the number of their jobs.

    WORKER is the last digits of the worker's number, enough for `dragoman drain` and `dragoman show-worker`; --json
    prints the whole number. SILENT is the time since its last message. One that is silent for LEASE counts as dead.
    """
    if fleet:
        _print_fleet(url, as_json, options)
        return
    with connected(url) as client:
        pages = client.pages(WORKERS, ListWorkersRequest(**given(options)))
        found = list(chain.from_iterable(map(noted, pages)))
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
    is_filtered = any(options[each] is not None for each in FILTERS)
    table = with_brokers(titles, rows, [each.broker for each in found])
    print_table(*table, "There are no such workers." if is_filtered else NO_WORKERS, fits=True)


LETTERS: dict[WorkerStateName, str] = {
    "idle": "i",
    "busy": "b",
    "stuck": "s",
    "detached": "d",
    "draining": "r",
    "starting": "t",
    "backing off": "o",
}


def _print_fleet(url: str | None, as_json: bool, options: dict[str, Any]) -> None:
    if given(options):
        raise click.UsageError("--fleet shows all workers: leave out the options that filter or sort.")
    view = perform(url, FLEET, EmptyRequest())
    if as_json:
        print_json(view)
        return
    note_unanswered(view.unanswered)
    if not view.states:
        click.echo(NO_WORKERS, err=True)
        return
    if view.each > 1:
        click.echo(f"A letter stands for {view.each} workers: the state that needs attention most.", err=True)
    click.echo(view.states)
    print_facts((state, count) for state, letter in LETTERS.items() if (count := view.states.count(letter)))
