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
  dragoman enqueue fetch --lines - --group < urls.txt
  dragoman enqueue report --after 0197f3a2c4d87b12a9e05c61f38d2b74 --input result

{EXITS}
""",
)
@click.argument("service")
@click.argument("data", default="")
@connect_option
@request_options(
    EnqueueRequest,
    *("delay", "priority", "attempts", "timeout", "retry_first", "retry_cap", "retry_jitter", "key", "unique", "keep"),
    *("tenant", "after", "after_failure", "input", "parent", "traceparent"),
)
@click.option(
    "--wait", type=click.FloatRange(min=0), metavar="S", help="Wait up to S seconds for the result, and print it."
)
@click.option(
    "--lines",
    metavar="FILE",
    help="Enqueue a job for each line of FILE, in one commit, and print their ids; `-`: standard input.",
)
@click.option("--group", is_flag=True, help="With --lines: make the jobs a group, and print its id instead.")
def enqueue(
    service: str,
    data: str,
    url: str | None,
    wait: float | None,
    lines: str | None,
    group: bool,
    **options: Any,
) -> None:
    """Enqueue a background job for SERVICE and print its id.

    DATA is the payload; `-` reads it from standard input. When the id is printed, the job is on disk. `dragoman result`
    prints its result, `dragoman job` shows its state.
    """
    if lines is not None:
        _enqueue_lines(service, data, url, wait, lines, group, given(options))
        return
    if group:
        raise click.UsageError("--group needs --lines FILE, which has a job on each line.")
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


NOT_FOR_LINES = ("key", "unique", "after", "after_failure", "input")


def _enqueue_lines(
    service: str,
    data: str,
    url: str | None,
    wait: float | None,
    lines: str,
    is_group: bool,
    options: dict[str, Any],
) -> None:
    """Enqueue a job for each line, without its line break. Print their ids, or the id of their group."""
    unusable = [f"--{name.replace('_', '-')}" for name in NOT_FOR_LINES if name in options]
    unusable += ["DATA"] if data else []
    unusable += ["--wait"] if wait is not None else []
    if unusable:
        raise click.UsageError(f"{', '.join(unusable)} cannot be combined with --lines.")
    try:
        with click.open_file(lines, "rb") as file:
            payloads = [line.rstrip(b"\r\n") for line in file]
    except OSError as error:
        raise click.UsageError(f"--lines: {lines} cannot be read: {error.strerror}.") from None
    if not payloads:
        raise click.UsageError("--lines: the file is empty; it needs a line for each job.")
    with connected(url) as client:
        if is_group:
            click.echo(client.enqueue_group(service, payloads, **options))
            return
        for job in client.enqueue_many(service, payloads, **options):
            click.echo(job)
