"""`dragoman group`: show the progress of a group of background jobs, or print its results."""

from __future__ import annotations

import re

import click

from dragoman.cli.client import connect_option, connected, json_option, naming_lists
from dragoman.cli.exit_codes import FAILED, TIMED_OUT, USAGE, fail, sentence_of, warn
from dragoman.cli.payloads import print_bytes
from dragoman.cli.tables import ago, print_facts, print_json
from dragoman.cli.terminal import time_text
from dragoman.operations.group_schemas import GroupRef, GroupView
from dragoman.operations.table import GROUP


@click.command(
    epilog="""\b
Examples:
  dragoman group 0197f3a2c4d87b12a9e05c61f38d2b74
  dragoman group 0197f3a2c4d87b12a9e05c61f38d2b74 --wait 60
  dragoman group 0197f3a2c4d87b12a9e05c61f38d2b74 --results > results.txt

Exit codes: 0 shown, or all jobs are done; 1 some are not done; 2 usage; 3 broker unreachable; 4 not complete yet.
""",
)
@click.argument("group")
@connect_option
@click.option("--results", is_flag=True, help="Print the results in the order of the jobs, one a line.")
@click.option(
    "--wait", type=click.FloatRange(min=0), metavar="S", help="Wait up to S seconds until all jobs have ended."
)
@json_option
def group(group: str, url: str | None, results: bool, wait: float | None, as_json: bool) -> None:
    """Show GROUP: how many of its jobs have ended, and how.

    `dragoman jobs --group GROUP` lists its jobs, and `dragoman cancel-group GROUP` cancels them.
    """
    if not re.fullmatch("[0-9a-f]{32}", group):
        advice = "a group's id has 32 lower-case hex digits, as `dragoman enqueue --lines FILE --group` prints it"
        fail(f"group {group!r}: {advice}", USAGE)
    if results and as_json:
        fail("--results writes bytes, not JSON: use one of --results and --json", USAGE)
    from dragoman.sdk.errors import JobTimeout

    with connected(url) as client, naming_lists(GROUP):
        found: list[object] | None = None
        if results or wait is not None:
            try:
                found = client.group_results(group, wait or 0.0, errors="return", codec="bytes")
            except JobTimeout:
                found = None
        view = client.operation(GROUP, GroupRef(id=group))
    if results and found is not None:
        _print_results(found)
    elif as_json:
        print_json(view)
    else:
        _print(view)
    if (results or wait is not None) and found is None:
        warn(f"group {group} is not complete: {view.says}")
        raise click.exceptions.Exit(TIMED_OUT)
    if found is not None and view.undone:
        raise click.exceptions.Exit(FAILED)


def _print(view: GroupView) -> None:
    print_facts(
        [
            ("group", view.id),
            ("progress", view.says),
            ("outcomes", ", ".join(f"{count} {outcome}" for outcome, count in view.outcomes.items())),
            ("services", ", ".join(view.services)),
            ("submitted", f"{time_text(view.created)} ({ago(view.created)})" if view.created is not None else None),
            ("ended", time_text(view.ended)),
            ("kept until", time_text(view.kept_until)),
            ("deleted", f"outcomes of {view.deleted} jobs" if view.deleted else None),
        ]
    )


def _print_results(found: list[object]) -> None:
    for place, each in enumerate(found):
        if isinstance(each, Exception):
            warn(f"job {place} of the group: {sentence_of(each)}")
        else:
            assert isinstance(each, bytes)
            print_bytes(each if each.endswith(b"\n") else each + b"\n")
