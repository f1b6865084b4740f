"""`dragoman health`: how a broker is."""

from __future__ import annotations

import click

from dragoman.cli.exit_codes import FAILED
from dragoman.cli.http import ask, connect_option, json_option, path
from dragoman.cli.tables import print_facts, print_json


@click.command(
    epilog="""\b
Examples:
  dragoman health
  dragoman health --json

Exit codes: 0 it takes new jobs; 1 it does not; 3 broker unreachable.
""",
)
@connect_option
@json_option
def health(url: str, as_json: bool) -> None:
    """Say whether the broker takes new jobs, and if not, why."""
    view = ask(url, "GET", path("health"))
    if as_json:
        print_json(view)
    else:
        is_stopping = "draining" if view["draining"] else "loading" if view["loading"] else "not ready"
        print_facts(
            [
                ("broker", "ready" if view["ready"] else is_stopping),
                *(("problem", each) for each in view["problems"]),
                ("version", view["version"]),
                ("jobs", view["jobs"]),
                ("workers", view["workers"]),
                ("peers", view["peers"]),
            ]
        )
    if not view["ready"]:
        raise click.exceptions.Exit(FAILED)
