"""`dragoman drain`: let a worker go."""

from __future__ import annotations

import click

from dragoman.cli.client import connect_option, perform
from dragoman.cli.request_options import request_options
from dragoman.cli.tables import plain
from dragoman.operations.schemas import DrainRequest
from dragoman.operations.table import DRAIN


@click.command(
    epilog="""\b
Examples:
  dragoman drain 17
  dragoman drain 17 --now
""",
)
@click.argument("worker", type=click.IntRange(0, 2**53))
@connect_option
@request_options(DrainRequest, "now")
def drain(worker: int, url: str | None, now: bool | None) -> None:
    """Give WORKER no more jobs, and let it finish what it holds.

    WORKER is its number in `dragoman workers`. A native, PingPong or Worker-Controller worker is then told to end. A
    MemoDB, Majordomo, Powerhose or HTTP worker cannot be told to end: it stays connected and gets no jobs until you
    stop or restart it. A program that is started again, or that joins again after its connection broke, is a new worker
    and gets jobs. To hand out no jobs of a service at all, use `dragoman pause`.
    """
    view = perform(url, DRAIN, DrainRequest(id=worker, now=bool(now)))
    holds = f", and still holds {len(view.running)}" if view.running else ""
    click.echo(f"worker {view.id} is {plain(view.state)}{holds}")
    if view.state == "gone" and view.comes_back:
        click.echo("Its program is likely to join again, as a new worker that gets jobs: stop it.")
    elif view.comes_back:
        click.echo("It stays connected and gets no jobs until you stop or restart it.")
