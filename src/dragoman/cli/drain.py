"""`dragoman drain`: let a worker go."""

from __future__ import annotations

import click

from dragoman.cli.http import ask, connect_option, path


@click.command(
    epilog="""\b
Examples:
  dragoman drain 17
  dragoman drain 17 --now
""",
)
@click.argument("worker", type=click.IntRange(min=0))
@connect_option
@click.option("--now", is_flag=True, help="Do not let it finish: what it holds is given to others, or ends lost.")
def drain(worker: int, url: str, now: bool) -> None:
    """Give WORKER no more jobs.

    It leaves when it has finished what it holds. WORKER is its number in `dragoman workers`.
    """
    view = ask(url, "POST", path("workers", worker, "drain"), said={"now": now})
    holds = f", and still holds {len(view['running'])}" if view["running"] else ""
    click.echo(f"worker {view['id']} is {view['state']}{holds}")
