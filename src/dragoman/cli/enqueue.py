"""`dragoman enqueue`: hand in a background job."""

from __future__ import annotations

import sys

import click

from dragoman.cli.http import connect_option, give_up_on, path, request
from dragoman.cli.request_options import request_options
from dragoman.cli.result import EXITS, print_result
from dragoman.operations.schemas import EnqueueRequest


@click.command(
    epilog=f"""\b
Examples:
  dragoman enqueue resize - < big.png
  dragoman enqueue report "2026-10" --delay 3600 --key report-2026-10
  dragoman enqueue resize - --wait 30 < big.png > small.png

{EXITS}
""",
)
@click.argument("service")
@click.argument("data", default="")
@connect_option
@request_options(
    EnqueueRequest, "delay", "priority", "attempts", "timeout", "retry_first", "retry_cap", "retry_jitter", "key"
)
@click.option("--wait", type=click.FloatRange(min=0), metavar="S", help="Wait so long for the result, and print it.")
def enqueue(
    service: str,
    data: str,
    url: str,
    delay: float | None,
    priority: int | None,
    attempts: int | None,
    timeout: float | str | None,
    retry_first: float | None,
    retry_cap: float | None,
    retry_jitter: float | None,
    key: str | None,
    wait: float | None,
) -> None:
    """Hand in a background job for SERVICE and print its id.

    DATA is the payload; `-` reads it from standard input. When the id is printed the job is on disk; `dragoman result`
    gets what became of it.
    """
    payload = sys.stdin.buffer.read() if data == "-" else data.encode("utf-8", "surrogateescape")
    query = {
        "service": service,
        "delay": delay,
        "priority": priority,
        "attempts": attempts,
        "timeout": timeout,
        "retry_first": retry_first,
        "retry_cap": retry_cap,
        "retry_jitter": retry_jitter,
        "key": key,
    }
    answer = request(url, "POST", path("jobs"), query=query, body=payload)
    if answer.status >= 400:
        give_up_on(answer)
    job = answer.json()["id"]
    if wait is None:
        click.echo(job)
    else:
        print_result(url, job, wait)
