"""`dragoman result`: print the result of a background job."""

from __future__ import annotations

import click

from dragoman.cli.client import connect_option, connected
from dragoman.cli.job_ids import job_argument
from dragoman.cli.payloads import print_bytes

EXITS = (
    "Exit codes: 0 done; 1 failed, lost, cancelled or refused; 2 usage; 3 broker unreachable; 4 timed out, or not yet."
)


@click.command(
    epilog=f"""\b
Examples:
  dragoman result 0197f3a2c4d87b12a9e05c61f38d2b74
  dragoman result 0197f3a2c4d87b12a9e05c61f38d2b74 --wait 30 > small.png

{EXITS}
""",
)
@job_argument
@connect_option
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    metavar="S",
    default=0.0,
    help="Seconds to wait for the result.  [default: 0]",
)
def result(job: str, url: str | None, wait: float) -> None:
    """Print the result of JOB.

    The result is written to standard output unchanged, errors to standard error.
    """
    with connected(url) as client:
        found = client.result(job, timeout=wait)
    print_bytes(found)
