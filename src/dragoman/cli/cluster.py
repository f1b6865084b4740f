"""`dragoman cluster`: look at the cluster of a broker."""

from __future__ import annotations

import click

from dragoman.cli.client import connect_option, json_option, perform
from dragoman.cli.tables import print_facts, print_json, print_table
from dragoman.operations.schemas import EmptyRequest
from dragoman.operations.table import CLUSTER


@click.group()
def cluster() -> None:
    """Look at the brokers of a cluster.

    A broker joins a cluster with `dragoman serve --cluster nats://HOST`.
    """


@cluster.command(
    epilog="""\b
Examples:
  dragoman cluster status
  dragoman cluster status --json | jq -r '.members[] | select(.state == "silent") | .name'
""",
)
@connect_option
@json_option
def status(url: str | None, as_json: bool) -> None:
    """Show the brokers of the cluster, as this broker knows them.

    GIVEN counts jobs of this broker that run there, TAKEN jobs from there that run at this one. IDLE counts free slots.
    """
    view = perform(url, CLUSTER, EmptyRequest())
    if as_json:
        print_json(view)
        return
    connected = f"connected to {view.server}" if view.connected else "not connected"
    print_facts([("cluster", view.name), ("broker", view.broker), ("NATS", connected)])
    rows = [
        (
            each.name,
            each.state,
            each.version,
            each.workers,
            each.idle,
            each.given,
            each.taken,
            "" if each.same_access else "its access table differs",
        )
        for each in view.members
    ]
    titles = ("BROKER", "STATE", "VERSION", "WORKERS", "IDLE", "GIVEN", "TAKEN", "")
    print_table(titles, rows, "There are no brokers.", fits=True)
