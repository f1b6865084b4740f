"""`dragoman pause`: pause a service."""

from __future__ import annotations

import click

from dragoman.cli.client import connect_option, perform
from dragoman.cli.request_options import given, request_options
from dragoman.cli.tables import plain
from dragoman.operations.schemas import PauseRequest
from dragoman.operations.table import PAUSE


@click.command(
    epilog="""\b
Examples:
  dragoman pause resize
  dragoman pause resize --by "Ada, while the disk is changed"
""",
)
@click.argument("service")
@connect_option
@request_options(PauseRequest, "by")
def pause(service: str, url: str | None, by: str | None) -> None:
    """Pause SERVICE: none of its jobs are given to workers until it is resumed.

    New jobs are still accepted, and running jobs go on. A pause survives a restart of the broker.
    """
    view = perform(url, PAUSE, PauseRequest(name=service, **given({"by": by})))
    click.echo(f"{plain(view.name)} is paused; waiting: {view.waiting}, running: {view.running}")
