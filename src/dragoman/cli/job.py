"""`dragoman job`: all that is known of one job."""

from __future__ import annotations

import click

from dragoman.cli.client import connect_option, json_option, perform
from dragoman.cli.tables import ago, print_facts, print_json, print_table, text_of
from dragoman.operations.schemas import JobRef
from dragoman.operations.table import JOB

SHOWN = 60  # characters of a result


@click.command(
    epilog="""\b
Examples:
  dragoman job 0197f3a2c4d87b12a9e05c61f38d2b74
  dragoman job 0197f3a2c4d87b12a9e05c61f38d2b74 --json
""",
)
@click.argument("job")
@connect_option
@json_option
def job(job: str, url: str | None, as_json: bool) -> None:
    """Show JOB: its state, its attempts, and how it ended.

    `dragoman result` prints its result as it came, `dragoman why` tells why it is not running.
    """
    view = perform(url, JOB, JobRef(id=job))
    if as_json:
        print_json(view)
        return
    print_facts(
        [
            ("job", view.id),
            ("service", view.service),
            ("state", view.state),
            ("outcome", f"{view.outcome}, in quarantine" if view.quarantined else view.outcome),
            ("reason", view.reason),
            ("created", f"{text_of(view.created)} ({ago(view.created)})"),
            ("not before", text_of(view.not_before)),
            ("kept until", text_of(view.kept_until)),
            ("priority", view.priority),
            ("key", view.key),
            ("retry of", view.retry_of),
            ("retried as", view.retried_as),
            ("result", _shortened(view.result)),
            ("result", view.result_base64 and "bytes: `dragoman result` prints them"),
        ]
    )
    if view.attempts:
        click.echo()
        rows = [(each.number, each.worker, each.outcome or "", each.reason) for each in view.attempts]
        print_table(("ATTEMPT", "WORKER", "OUTCOME", "REASON"), rows, "")


def _shortened(text: str | None) -> str | None:
    return text if text is None or len(text) <= SHOWN else f"{text[:SHOWN]}…"
