"""`dragoman purge`: cancel the waiting jobs of a service, or delete outcomes of ended ones."""

from __future__ import annotations

import sys

import click

from dragoman.cli.client import connect_option, perform
from dragoman.cli.exit_codes import USAGE, fail
from dragoman.cli.tables import plain
from dragoman.operations.schemas import PurgeRequest
from dragoman.operations.table import PURGE


@click.command(
    epilog="""\b
Examples:
  dragoman purge resize
  dragoman purge resize --ended --yes
""",
)
@click.argument("service")
@connect_option
@click.option("--ended", is_flag=True, help="Delete the outcomes of ended jobs instead.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def purge(service: str, url: str | None, ended: bool, yes: bool) -> None:
    """Cancel all waiting, delayed and dependent jobs of SERVICE.

    Running jobs go on. This cannot be undone, so the command asks for confirmation. To select jobs by their reason or
    time, use `dragoman cancel --all` or `dragoman delete --all`.
    """
    name = plain(service)
    action = f"Delete the outcomes of the ended jobs of {name}" if ended else f"Cancel all waiting jobs of {name}"
    if not yes:
        if not sys.stdin.isatty():
            fail("a purge cannot be undone, and standard input is no terminal to confirm it: add --yes", USAGE)
        click.confirm(f"{action}?", abort=True)
    request = PurgeRequest(name=service, states=("ended",)) if ended else PurgeRequest(name=service)
    count = perform(url, PURGE, request).purged
    jobs = f"1 job of {name} is" if count == 1 else f"{count} jobs of {name} are"
    click.echo(f"{jobs} {'forgotten' if ended else 'cancelled'}")
