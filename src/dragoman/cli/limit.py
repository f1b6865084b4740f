"""`dragoman limit`: limit a service."""

from __future__ import annotations

import click

from dragoman.cli.client import connect_option, json_option, perform
from dragoman.cli.request_options import given, request_options
from dragoman.cli.tables import plain, print_json
from dragoman.operations.limit_schemas import LimitRequest
from dragoman.operations.schemas import LimitsView, ServiceRef
from dragoman.operations.table import LIMIT, SERVICE


@click.command(
    epilog="""\b
Examples:
  dragoman limit mail --max-running 4 --rate 100/min
  dragoman limit mail --max-running-per-tenant 2
  dragoman limit mail --rate none
  dragoman limit mail --reset
  dragoman limit mail
""",
)
@click.argument("service")
@connect_option
@json_option
@request_options(LimitRequest, "max_running", "max_running_per_tenant", "rate", "reset")
def limit(
    service: str,
    url: str | None,
    as_json: bool,
    max_running: int | None,
    max_running_per_tenant: int | None,
    rate: str | None,
    reset: bool | None,
) -> None:
    """Limit SERVICE: its running jobs, those of one tenant, and the rate of their starts.

    Jobs beyond a limit wait, and running jobs continue. A limit survives restarts of the broker, and beats what the
    workers of the service declare. Without options, the limits that hold are shown.
    """
    options = given(
        {
            "max_running": max_running,
            "max_running_per_tenant": max_running_per_tenant,
            "rate": rate,
            "reset": reset or None,
        }
    )
    if options:
        view = perform(url, LIMIT, LimitRequest(name=service, **options))
    else:
        view = perform(url, SERVICE, ServiceRef(name=service))
    if as_json:
        print_json(view)
        return
    click.echo(f"{plain(view.name)}: {limits_text(view.limits)}; waiting: {view.waiting}, running: {view.running}")


def limits_text(limits: LimitsView | None) -> str:
    """`max_running 4 (set by an operator), rate 100/min (declared by its workers)`."""
    if limits is None:
        return "no limits"
    values = {
        "max_running": limits.max_running,
        "max_running_per_tenant": limits.max_running_per_tenant,
        "rate": limits.rate,
    }
    return ", ".join(
        f"{name} {value} ({plain(limits.authors.get(name, ''))})" for name, value in values.items() if value is not None
    )
