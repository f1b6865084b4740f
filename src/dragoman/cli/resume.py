"""`dragoman resume`: hand out jobs of a service again."""

from __future__ import annotations

import click

from dragoman.cli.http import ask, connect_option, path
from dragoman.cli.tables import plain


@click.command(
    epilog="""\b
Examples:
  dragoman resume resize
""",
)
@click.argument("service")
@connect_option
def resume(service: str, url: str) -> None:
    """Hand out jobs of SERVICE again."""
    view = ask(url, "POST", path("services", service, "resume"))
    click.echo(f"{plain(view['name'])} is not paused any more; waiting: {view['waiting']}, running: {view['running']}")
