"""`dragoman broker`: show the broker itself."""

from __future__ import annotations

import click

from dragoman.cli.client import connect_option, json_option, perform
from dragoman.cli.request_options import request_options
from dragoman.cli.tables import ago, print_facts, print_json, rounded_size
from dragoman.operations.cluster_schemas import NamedBroker
from dragoman.operations.list_schemas import LimitView
from dragoman.operations.table import BROKER

IN_BYTES = ("max_memory", "max_outcome_bytes", "max_store_size")


@click.command(
    epilog="""\b
Examples:
  dragoman broker
  dragoman broker --broker eu2
  dragoman broker --json | jq '.limits[] | select(.used > 0.8 * .of)'
""",
)
@connect_option
@request_options(NamedBroker, "broker")
@json_option
def broker(url: str | None, broker: str | None, as_json: bool) -> None:
    """Show the version of the broker, its limits, and the settings that are not default."""
    view = perform(url, BROKER, NamedBroker(broker=broker))
    if as_json:
        print_json(view)
        return
    build = "compiled" if view.compiled else "interpreted"
    print_facts(
        [
            ("name", view.name),
            ("version", f"{view.version} ({build}, Python {view.python})"),
            ("started", ago(view.started)),
            ("instance", view.instance),
            ("store", rounded_size(view.store_size) if view.store_size is not None else "memory"),
            *((each.name, _used(each)) for each in view.limits),
            *((f"setting {name}", value) for name, value in view.settings.items()),
        ]
    )


def _used(limit: LimitView) -> str:
    """`1,204 of 1,000,000 (0 %)`."""
    show = rounded_size if limit.name in IN_BYTES else "{:,}".format
    share = f" ({100 * limit.used / limit.of:.0f} %)" if limit.of else ""
    return f"{show(limit.used)} of {show(limit.of)}{share}"
