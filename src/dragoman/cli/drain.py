"""`dragoman drain`: let a worker go."""

from __future__ import annotations

import click

from dragoman.cli.http import ask, connect_option, path
from dragoman.cli.request_options import request_options
from dragoman.operations.schemas import DrainRequest


@click.command(
    epilog="""\b
Examples:
  dragoman drain 17
  dragoman drain 17 --now
""",
)
@click.argument("worker", type=click.IntRange(min=0))
@connect_option
@request_options(DrainRequest, "now")
def drain(worker: int, url: str, now: bool | None) -> None:
    """Give WORKER no more jobs, and let it finish what it holds.

    WORKER is its number in `dragoman workers`. A native, PingPong or Worker-Controller worker is then told to end. A
    MemoDB, Majordomo, Powerhose or HTTP worker cannot be told to end: it stays connected and gets no jobs until you
    stop or restart it. A program that is started again, or that joins again after its connection broke, is a new worker
    and gets jobs. To hand out no jobs of a service at all, use `dragoman pause`.
    """
    view = ask(url, "POST", path("workers", worker, "drain"), said={"now": bool(now)})
    holds = f", and still holds {len(view['running'])}" if view["running"] else ""
    click.echo(f"worker {view['id']} is {view['state']}{holds}")
    if view["state"] == "gone" and view["comes_back"]:
        click.echo("Its program is likely to join again, as a new worker that gets jobs: stop it.")
    elif view["comes_back"]:
        click.echo("It stays connected and gets no jobs until you stop or restart it.")
