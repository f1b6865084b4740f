"""`dragoman resume`: resume a paused service."""

from __future__ import annotations

import click

from dragoman.cli.client import connect_option, perform
from dragoman.cli.tables import plain
from dragoman.operations.schemas import ServiceRef
from dragoman.operations.table import RESUME


@click.command(
    epilog="""\b
Examples:
  dragoman resume resize
""",
)
@click.argument("service")
@connect_option
def resume(service: str, url: str | None) -> None:
    """Resume SERVICE: its jobs are given to workers again."""
    view = perform(url, RESUME, ServiceRef(name=service))
    click.echo(f"{plain(view.name)} is not paused any more; waiting: {view.waiting}, running: {view.running}")
