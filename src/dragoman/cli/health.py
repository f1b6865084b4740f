"""`dragoman health`: show whether the broker takes new jobs."""

from __future__ import annotations

import click

from dragoman.cli.client import connect_option, json_option, perform
from dragoman.cli.exit_codes import FAILED
from dragoman.cli.tables import print_facts, print_json
from dragoman.operations.schemas import EmptyRequest
from dragoman.operations.table import HEALTH


@click.command(
    epilog="""\b
Examples:
  dragoman health
  dragoman health --json

Exit codes: 0 takes new jobs; 1 takes none; 3 broker unreachable.
""",
)
@connect_option
@json_option
def health(url: str | None, as_json: bool) -> None:
    """Show whether the broker takes new jobs, and if not, the reason."""
    view = perform(url, HEALTH, EmptyRequest())
    if as_json:
        print_json(view)
    else:
        state = "draining" if view.draining else "loading" if view.loading else "not ready"
        print_facts(
            [
                ("broker", "ready" if view.ready else state),
                *(("problem", each) for each in view.problems),
                *(("degraded", each) for each in view.degraded),
                *([("degraded", view.replicas)] if view.replicas else []),
                ("version", view.version),
                ("jobs", view.jobs),
                ("workers", view.workers),
                ("connections", view.peers),
            ]
        )
    if not view.ready:
        raise click.exceptions.Exit(FAILED)
