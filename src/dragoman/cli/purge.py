"""`dragoman purge`: empty a service's queue."""

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
@click.option("--ended", is_flag=True, help="Forget the outcomes of jobs that have ended instead.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def purge(service: str, url: str | None, ended: bool, yes: bool) -> None:
    """Cancel all jobs of SERVICE that wait or are delayed.

    What runs is left alone. There is no way back, so you are asked first.
    """
    name = plain(service)
    what = f"Forget how the ended jobs of {name} ended" if ended else f"Cancel all jobs of {name} that wait"
    if not yes:
        if not sys.stdin.isatty():
            fail("there is no way back from a purge: say --yes if nobody can be asked", USAGE)
        click.confirm(f"{what}?", abort=True)
    request = PurgeRequest(name=service, states=("ended",)) if ended else PurgeRequest(name=service)
    count = perform(url, PURGE, request).purged
    jobs = f"1 job of {name} is" if count == 1 else f"{count} jobs of {name} are"
    click.echo(f"{jobs} {'forgotten' if ended else 'cancelled'}")
