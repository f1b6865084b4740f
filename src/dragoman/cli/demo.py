"""`dragoman demo`: show every pair of dialects at work."""

from __future__ import annotations

import signal
import sys
from types import FrameType

import click

from dragoman.cli.exit_codes import DONE, FAILED

TERMINATED = 143


@click.command(
    epilog="""\b
Examples:
  dragoman demo
  dragoman demo --stay

Exit codes: 0 everything is right; 1 a result is wrong or missing; 130 interrupted before the end.
""",
)
@click.option("--quick", is_flag=True, help="Make 5 calls for each pair of dialects instead of 200.")
@click.option("--stay", is_flag=True, help="Then keep the broker running with a gentle load, until Ctrl-C.")
def demo(quick: bool, stay: bool) -> None:
    """Run a broker with callers and workers of every dialect, and let them talk to each other.

    Every dialect calls workers of every other, and all results are checked. Then a worker is killed in the middle of a
    job, a job waits for a worker, and a job that fails is retried. The demo takes less than a minute, uses free ports
    of 127.0.0.1, stores nothing, and ends all of its processes. Some workers are in C and JavaScript, if a C compiler
    with libzmq and Node are installed.
    """
    from dragoman.sdk.extras import require

    require("broker")
    from dragoman.demo.processes import forget_settings
    from dragoman.demo.story import QUICK, Sizes, tell

    forget_settings()
    signal.signal(signal.SIGTERM, _terminated)
    is_right = tell(QUICK if quick else Sizes(), stay)
    raise click.exceptions.Exit(DONE if is_right else FAILED)


def _terminated(number: int, frame: FrameType | None) -> None:
    """End the demo as Ctrl-C does: with all of its processes."""
    sys.exit(TERMINATED)
