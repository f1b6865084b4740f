"""`dragoman result`: what became of a background job."""

from __future__ import annotations

import sys
import time

import click

from dragoman.cli.exit_codes import TIMED_OUT, fail
from dragoman.cli.http import connect_option, give_up_on, path, request

A_TIME = 60.0  # seconds that one request waits at most

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
@click.argument("job")
@connect_option
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    metavar="S",
    default=0.0,
    help="Wait so many seconds for it.  [default: not at all]",
)
def result(job: str, url: str, wait: float) -> None:
    """Print the result of JOB.

    It goes to standard output as it came, errors to standard error.
    """
    print_result(url, job, wait)


def print_result(url: str, job: str, wait: float) -> None:
    end = time.monotonic() + wait
    while True:
        patience = min(max(0.0, end - time.monotonic()), A_TIME)
        answer = request(url, "GET", path("jobs", job, "result"), query={"wait": round(patience, 3)}, wait=patience)
        if answer.status >= 400:
            give_up_on(answer)
        if answer.status == 200:
            break
        if time.monotonic() >= end:
            fail(f"job {job} has not ended yet: it is {answer.json()['state']}", TIMED_OUT)
    sys.stdout.buffer.write(answer.body)
    if sys.stdout.isatty() and not answer.body.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
