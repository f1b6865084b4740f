"""`dragoman quarantine`: list the jobs in quarantine by cause, and retry those of one cause."""

from __future__ import annotations

from typing import Any

import click

from dragoman.cli.broker_column import note_unanswered, with_brokers
from dragoman.cli.client import connect_option, json_option, perform
from dragoman.cli.request_options import given, request_options
from dragoman.cli.tables import age, plain, print_json, print_table
from dragoman.operations.quarantine_schemas import RetryGroupRequest
from dragoman.operations.schemas import EmptyRequest
from dragoman.operations.table import QUARANTINE, RETRY_GROUP


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  dragoman quarantine
  dragoman quarantine retry 9f2c61e07ad35b18 --rate 5
""",
)
@connect_option
@json_option
@click.pass_context
def quarantine(context: click.Context, url: str | None, as_json: bool) -> None:
    """List the jobs in quarantine by cause: service, outcome and reason.

    A job that has used up its attempts is in quarantine. `dragoman jobs --quarantined` lists the jobs one by one.
    """
    if context.invoked_subcommand is not None:
        return
    view = perform(url, QUARANTINE, EmptyRequest())
    if as_json:
        print_json(*view.groups)
    else:
        rows = [
            (
                each.group,
                each.service,
                each.outcome,
                each.count,
                age(each.last) if each.last is not None else "",
                each.reason,
            )
            for each in view.groups
        ]
        titles = ("GROUP", "SERVICE", "OUTCOME", "JOBS", "LAST", "REASON")
        table = with_brokers(titles, rows, [each.brokers for each in view.groups])
        print_table(*table, "Nothing is in quarantine.", fits=True)
    note_unanswered(view.unanswered, view.unanswered_shards)
    if view.more:
        click.echo(f"{view.more} more jobs have other causes: `dragoman jobs --quarantined` lists them.", err=True)


@quarantine.command()
@click.argument("group")
@connect_option
@request_options(RetryGroupRequest, "rate")
@json_option
def retry(group: str, url: str | None, as_json: bool, **more: Any) -> None:
    """Retry the jobs of GROUP: each becomes a new job, and the old one leaves the quarantine.

    The command starts the retry and returns. Run it again to see the progress. If the broker stops before the end, the
    rest stays in quarantine.
    """
    view = perform(url, RETRY_GROUP, RetryGroupRequest(group=group, **given(more)))
    if as_json:
        print_json(view)
        return
    jobs = "1 job" if view.of == 1 else f"{view.of} jobs"
    click.echo(f"{plain(view.group)}: {view.retried} of {jobs} retried so far")
