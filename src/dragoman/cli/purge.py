"""`dragoman purge`: cancel the jobs of a service that have not started, or delete outcomes of ended ones."""

from __future__ import annotations

import sys
from typing import Any

import click

from dragoman.cli import cancel, delete
from dragoman.cli.bulk import bulk_options, check_choice, perform_for_all
from dragoman.cli.client import connect_option, perform
from dragoman.cli.exit_codes import USAGE, fail
from dragoman.cli.request_options import given
from dragoman.cli.tables import plain
from dragoman.operations.bulk_schemas import BulkRequest, CancelJobsRequest, DeleteJobsRequest
from dragoman.operations.schemas import PurgeRequest
from dragoman.operations.table import PURGE


@click.command(
    epilog="""\b
Examples:
  dragoman purge resize
  dragoman purge resize --ended --yes
  dragoman purge --all --service resize --reason "out of memory" --since 2h --dry-run
""",
)
@click.argument("name", required=False, metavar="[SERVICE]")
@connect_option
@click.option("--ended", is_flag=True, help="Delete the outcomes of ended jobs instead.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@bulk_options(BulkRequest)
def purge(
    name: str | None, url: str | None, ended: bool, yes: bool, for_all: bool, as_json: bool, **options: Any
) -> None:
    """Cancel all waiting, delayed and dependent jobs of SERVICE.

    Running jobs go on. This cannot be undone, so the command asks for confirmation. With --all, the jobs that match the
    filters are cancelled (with --ended: deleted), and their number is printed.
    """
    check_choice([name] if name else [], for_all, {**options, "json": as_json or None}, "a service")
    if for_all:
        values = given(options)
        if ended:
            perform_for_all(delete.BULK, DeleteJobsRequest(all=True, **values), url, is_confirmed=yes, as_json=as_json)
        else:
            request = CancelJobsRequest(all=True, state="pending", **values)
            perform_for_all(cancel.BULK, request, url, is_confirmed=yes, as_json=as_json)
        return
    assert name
    shown = plain(name)
    action = f"Delete the outcomes of the ended jobs of {shown}" if ended else f"Cancel all waiting jobs of {shown}"
    if not yes:
        if not sys.stdin.isatty():
            fail("a purge cannot be undone, and standard input is no terminal to confirm it: add --yes", USAGE)
        click.confirm(f"{action}?", abort=True)
    asked = PurgeRequest(name=name, states=("ended",)) if ended else PurgeRequest(name=name)
    count = perform(url, PURGE, asked).purged
    jobs = f"1 job of {shown} is" if count == 1 else f"{count} jobs of {shown} are"
    click.echo(f"{jobs} {'forgotten' if ended else 'cancelled'}")
