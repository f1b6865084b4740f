"""`dragoman why`: explain why a job is not running."""

from __future__ import annotations

import click

from dragoman.cli.client import connect_option, json_option, perform
from dragoman.cli.job_ids import job_argument
from dragoman.cli.tables import plain, print_json
from dragoman.operations.schemas import JobRef
from dragoman.operations.table import WHY


@click.command(
    epilog="""\b
Examples:
  dragoman why 0197f3a2c4d87b12a9e05c61f38d2b74
""",
)
@job_argument
@connect_option
@json_option
def why(job: str, url: str | None, as_json: bool) -> None:
    """Explain in one sentence why JOB is not running, or how it ended.

    A second line is about its idempotency key and about the time for which its outcome is kept, if these were chosen.
    """
    view = perform(url, WHY, JobRef(id=job))
    if as_json:
        print_json(view)
    else:
        click.echo(plain(view.why))
        if view.more:
            click.echo(plain(view.more))
