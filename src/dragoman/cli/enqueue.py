"""`dragoman enqueue`: enqueue a background job."""

from __future__ import annotations

import sys
from typing import Any

import click

from dragoman.cli.client import connect_option, connected
from dragoman.cli.exit_codes import INTERRUPTED
from dragoman.cli.payloads import print_bytes, read_payload
from dragoman.cli.request_options import given, request_options
from dragoman.cli.result import EXITS
from dragoman.operations.schemas import EnqueueRequest


@click.command(
    epilog=f"""\b
Examples:
  dragoman enqueue resize - < big.png
  dragoman enqueue report "2026-10" --delay 3600 --key report-2026-10
  dragoman enqueue backup "" --key nightly --unique unfinished
  dragoman enqueue resize - --wait 30 < big.png > small.png

{EXITS}
""",
)
@click.argument("service")
@click.argument("data", default="")
@connect_option
@request_options(
    EnqueueRequest,
    *("delay", "priority", "attempts", "timeout", "retry_first", "retry_cap", "retry_jitter", "key", "unique", "keep"),
)
@click.option(
    "--wait", type=click.FloatRange(min=0), metavar="S", help="Wait up to S seconds for the result, and print it."
)
def enqueue(service: str, data: str, url: str | None, wait: float | None, **options: Any) -> None:
    """Enqueue a background job for SERVICE and print its id.

    DATA is the payload; `-` reads it from standard input. When the id is printed, the job is on disk. `dragoman result`
    prints its result, `dragoman job` shows its state.
    """
    payload = read_payload(data)
    with connected(url) as client:
        job = client.enqueue(service, payload, **given(options))
        try:
            result = client.result(job, timeout=wait) if wait is not None else None
        except KeyboardInterrupt:
            after_echo = "\n" if sys.stderr.isatty() else ""  # a terminal shows ^C before it
            sentence = f"job {job} continues; `dragoman result {job} --wait 60` prints its result"
            click.echo(after_echo + sentence, err=True)
            raise click.exceptions.Exit(INTERRUPTED) from None
    if result is None:
        click.echo(job)
    else:
        print_bytes(result)
