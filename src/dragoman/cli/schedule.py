"""`dragoman schedule`: manage schedules."""

from __future__ import annotations

from typing import Any

import click

from dragoman.cli.broker_column import note_unanswered, with_brokers
from dragoman.cli.client import connect_option, json_option, perform
from dragoman.cli.exit_codes import USAGE, fail
from dragoman.cli.payloads import read_payload
from dragoman.cli.request_options import given, request_options
from dragoman.cli.tables import ago, plain, print_facts, print_json, print_table
from dragoman.cli.terminal import time_text
from dragoman.core.rights import LOCAL
from dragoman.operations.schemas import EmptyRequest, ScheduleAct, ScheduleRef, ScheduleRequest, ScheduleView
from dragoman.operations.table import (
    DELETE_SCHEDULE,
    PAUSE_SCHEDULE,
    RESUME_SCHEDULE,
    RUN_SCHEDULE,
    SCHEDULE,
    SCHEDULES,
    SET_SCHEDULE,
)


@click.group(
    epilog="""\b
Examples:
  dragoman schedule set nightly report "all" --cron "0 3 * * *" --timezone Europe/Vienna
  dragoman schedule set poll check --every 30
  dragoman schedule list
"""
)
def schedule() -> None:
    """Manage schedules.

    A schedule enqueues a background job by a cron expression or at an interval.
    """


@schedule.command("list")
@connect_option
@json_option
def list_(url: str | None, as_json: bool) -> None:
    """List schedules."""
    view = perform(url, SCHEDULES, EmptyRequest())
    found = view.schedules
    note_unanswered(view.unanswered, view.unanswered_shards)
    if as_json:
        print_json(*found)
        return
    rows = [
        (
            each.name,
            each.service,
            _rhythm(each),
            _next(each),
            each.runs,
            each.skipped,
            each.last_job or "",
        )
        for each in found
    ]
    titles = ("NAME", "SERVICE", "RHYTHM", "NEXT", "RUNS", "SKIPPED", "LAST JOB")
    print_table(*with_brokers(titles, rows, [each.broker for each in found]), "There are no schedules.", fits=True)


@schedule.command()
@click.argument("name")
@connect_option
@json_option
def show(name: str, url: str | None, as_json: bool) -> None:
    """Show the schedule NAME."""
    _print(perform(url, SCHEDULE, ScheduleRef(name=name)), as_json)


@schedule.command(
    "set",
    epilog="""\b
Examples:
  dragoman schedule set nightly report "all" --cron "0 3 * * *" --timezone Europe/Vienna
  dragoman schedule set poll check --every 30 --overlap
""",
)
@click.argument("name")
@click.argument("service")
@click.argument("data", default="")
@connect_option
@request_options(
    ScheduleRequest, "cron", "every", "timezone", "overlap", "paused", "priority", "attempts", "timeout", "tenant"
)
@request_options(ScheduleRequest, "retry_first", "retry_cap", "retry_jitter", "keep")
@json_option
def set_(
    name: str,
    service: str,
    data: str,
    url: str | None,
    cron: str | None,
    every: float | None,
    as_json: bool,
    **more: Any,
) -> None:
    """Create the schedule NAME, which enqueues jobs for SERVICE.

    DATA is the payload of each job; `-` reads it from standard input. Give exactly one of --cron and --every. An
    existing schedule with this name is replaced.
    """
    if (cron is None) == (every is None):
        fail("a schedule needs exactly one of --cron and --every", USAGE)
    request = ScheduleRequest(name=name, service=service, **given({"cron": cron, "every": every, **more}))
    _print(perform(url, SET_SCHEDULE, request, read_payload(data)), as_json)


@schedule.command()
@click.argument("name")
@connect_option
def remove(name: str, url: str | None) -> None:
    """Remove the schedule NAME. Jobs that it has enqueued stay."""
    view = perform(url, DELETE_SCHEDULE, ScheduleAct(name=name))
    click.echo(f"{plain(view.name)} is removed")


@schedule.command()
@click.argument("name")
@connect_option
def pause(name: str, url: str | None) -> None:
    """Pause the schedule NAME: it enqueues no jobs until it is resumed."""
    view = perform(url, PAUSE_SCHEDULE, ScheduleRef(name=name))
    click.echo(f"{plain(view.name)} is paused")


@schedule.command()
@click.argument("name")
@connect_option
def resume(name: str, url: str | None) -> None:
    """Resume the schedule NAME from now on: runs that were missed are not made up for."""
    view = perform(url, RESUME_SCHEDULE, ScheduleRef(name=name))
    click.echo(f"{plain(view.name)} is not paused any more; next {_next(view)}")


@schedule.command()
@click.argument("name")
@connect_option
def run(name: str, url: str | None) -> None:
    """Enqueue the job of the schedule NAME now, and print its id. The scheduled runs stay as they are."""
    click.echo(perform(url, RUN_SCHEDULE, ScheduleAct(name=name)).last_job)


def _print(view: ScheduleView, as_json: bool) -> None:
    if as_json:
        print_json(view)
        return
    print_facts(
        [
            ("name", view.name),
            ("service", view.service),
            ("rhythm", _rhythm(view)),
            ("in words", view.says or None),
            ("overlap", "yes" if view.overlap else "no: a run is skipped while the last job has not ended"),
            ("owner", view.owner if view.owner != LOCAL else None),
            ("next", _paused(view) or (view.next and f"{time_text(view.next)} ({_next(view)})")),
            ("last", time_text(view.last)),
            ("last job", view.last_job),
            ("runs", view.runs),
            ("skipped", view.skipped),
            ("recent", view.recent or None),
            ("last took", f"{view.last_took:g} s" if view.last_took is not None else None),
        ]
    )


def _rhythm(view: ScheduleView) -> str:
    return f"{view.cron} ({view.timezone})" if view.cron is not None else f"every {view.every:g} s"


def _paused(view: ScheduleView) -> str:
    if not view.paused:
        return ""
    return f"paused by the broker: {view.paused_reason}" if view.paused_reason else "paused"


def _next(view: ScheduleView) -> str:
    if view.paused:
        return "paused"
    return ago(view.next) if view.next is not None else "never"
