"""`dragoman why`: why a job is not running."""

from __future__ import annotations

import click

from dragoman.cli.http import ask, connect_option, json_option, path
from dragoman.cli.tables import plain, print_json


@click.command(
    epilog="""\b
Examples:
  dragoman why 0197f3a2c4d87b12a9e05c61f38d2b74
""",
)
@click.argument("job")
@connect_option
@json_option
def why(job: str, url: str, as_json: bool) -> None:
    """Say why JOB is not running, or how it ended, in one sentence."""
    view = ask(url, "GET", path("jobs", job, "why"))
    if as_json:
        print_json(view)
    else:
        click.echo(plain(view["why"]))
