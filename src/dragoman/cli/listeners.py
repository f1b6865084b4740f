"""`dragoman listeners`: list the listeners of a broker."""

from __future__ import annotations

import click

from dragoman.cli.client import connect_option, json_option, perform
from dragoman.cli.request_options import request_options
from dragoman.cli.tables import print_json, print_table, rounded_size
from dragoman.operations.cluster_schemas import NamedBroker
from dragoman.operations.list_schemas import ListenerView
from dragoman.operations.table import LISTENERS


@click.command(
    epilog="""\b
Examples:
  dragoman listeners
  dragoman listeners --broker eu2
  dragoman listeners --json | jq -r 'select(.bad > 0) | .bad_reasons'
""",
)
@connect_option
@request_options(NamedBroker, "broker")
@json_option
def listeners(url: str | None, broker: str | None, as_json: bool) -> None:
    """List the listeners of the broker with their connections and traffic.

    RECEIVED and SENT are the bytes since the broker started. BAD counts bad messages and rejected requests; --json has
    their reasons.
    """
    found = perform(url, LISTENERS, NamedBroker(broker=broker)).listeners
    if as_json:
        print_json(*found)
        return
    rows = [
        (
            each.url,
            each.dialect + (f" {each.edition}" if each.edition is not None else ""),
            each.peers,
            rounded_size(each.received),
            rounded_size(each.sent),
            each.bad,
            _note(each),
        )
        for each in found
    ]
    titles = ("LISTENER", "DIALECT", "CONNECTIONS", "RECEIVED", "SENT", "BAD", "")
    print_table(titles, rows, "There are no listeners.", fits=True)


def _note(listener: ListenerView) -> str:
    notes = []
    if listener.frontend is not None:
        notes.append(f"callers at {listener.frontend}")
    elif listener.roles == ["worker"]:
        notes.append("workers only")
    if listener.insecure:
        notes.append("without authentication")
    return ", ".join(notes)
