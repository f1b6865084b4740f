"""`dragoman drain`: give a worker no more jobs."""

from __future__ import annotations

import click

from dragoman.cli.client import connect_option, connected, naming_lists
from dragoman.cli.request_options import request_options
from dragoman.cli.tables import plain
from dragoman.cli.worker_ids import worker_id
from dragoman.operations.schemas import DrainRequest
from dragoman.operations.table import DRAIN


@click.command(
    epilog="""\b
Examples:
  dragoman drain 17
  dragoman drain 17 --now
""",
)
@click.argument("worker")
@connect_option
@request_options(DrainRequest, "now")
def drain(worker: str, url: str | None, now: bool | None) -> None:
    """Give WORKER no more jobs, and let it finish the jobs that it holds.

    WORKER is its number, or the last digits that `dragoman workers` lists. A native, PingPong or Worker-Controller
    worker is then sent a message to end. MemoDB, Majordomo, Powerhose and HTTP have no such message: the worker stays
    connected and gets no jobs until you stop or restart it. A program that is started again, or that joins again after
    its connection broke, is a new worker and gets jobs. To pause all jobs of a service, use `dragoman pause`.
    """
    with connected(url) as client, naming_lists(DRAIN):
        view = client.operation(DRAIN, DrainRequest(id=worker_id(client, worker), now=bool(now)))
    holds = f", and still holds {len(view.running)}" if view.running else ""
    click.echo(f"worker {view.id} is {plain(view.state)}{holds}")
    if view.state == "gone" and view.comes_back:
        click.echo("Its program is likely to join again, as a new worker that gets jobs: stop it.")
    elif view.comes_back:
        click.echo("It stays connected and gets no jobs until you stop or restart it.")
