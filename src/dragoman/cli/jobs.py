"""`dragoman jobs`: a list of jobs."""

from __future__ import annotations

import click

from dragoman.cli.http import connect_option, give_up_on, json_option, path, request
from dragoman.cli.tables import age, print_json, print_table

A_PAGE = 1_000


@click.command(
    epilog="""\b
Examples:
  dragoman jobs
  dragoman jobs --service resize --state waiting
  dragoman jobs --quarantined --json | jq -r .id | xargs dragoman retry
""",
)
@connect_option
@click.option("--service", metavar="NAME", help="Only jobs for this service.")
@click.option("--state", type=click.Choice(["waiting", "delayed", "running", "ended"]), help="Only jobs in this state.")
@click.option(
    "--outcome",
    type=click.Choice(["done", "failed", "timed out", "lost", "cancelled", "refused"]),
    help="Only jobs that ended so.",
)
@click.option("--quarantined", is_flag=True, help="Only jobs in quarantine, which `dragoman retry` tries again.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Show so many at most.")
@json_option
def jobs(
    url: str,
    service: str | None,
    state: str | None,
    outcome: str | None,
    quarantined: bool,
    limit: int,
    as_json: bool,
) -> None:
    """List jobs, the newest first."""
    query = {
        "service": service,
        "state": state,
        "outcome": outcome,
        "quarantined": "true" if quarantined else None,
    }
    found: list[dict[str, object]] = []
    after = None
    while len(found) < limit:
        page = {**query, "after": after, "limit": min(limit - len(found), A_PAGE)}
        answer = request(url, "GET", path("jobs"), query=page)
        if answer.status >= 400:
            give_up_on(answer)
        found += answer.json()["jobs"]
        after = answer.json()["after"]
        if after is None:
            break
    if as_json:
        print_json(*found)
        return
    rows = [
        (
            each["id"],
            each["service"],
            each["outcome"] or each["state"],
            age(str(each["created"])),
            len(each["attempts"]),  # type: ignore[arg-type]
            each["reason"],
        )
        for each in found
    ]
    print_table(("JOB", "SERVICE", "STATE", "AGE", "ATTEMPTS", "REASON"), rows, "There are no such jobs.")
    if after is not None:
        click.echo(f"There are more than these {limit}: --limit shows them.", err=True)
