"""Acts on many jobs: the options of --all of `retry`, `cancel`, `delete` and `purge`, their progress and their end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import click
from msgspec.structs import replace

from dragoman.cli.client import connected
from dragoman.cli.exit_codes import FAILED, INTERRUPTED, USAGE, fail, warn
from dragoman.cli.progress_bar import ProgressBar
from dragoman.cli.request_options import given, request_options
from dragoman.cli.tables import age, print_json, print_table
from dragoman.operations.bulk_schemas import BulkRef, BulkRequest, BulkView
from dragoman.operations.operation import Operation
from dragoman.operations.table import BULK_ACT, STOP_BULK_ACT

if TYPE_CHECKING:
    from dragoman.sdk.client import Client

LEASE = 10.0  # seconds: the act stops if this process is killed
INTERVAL = 0.1  # seconds between two requests for the progress
FILTERS = ("service", "reason", "since", "until")

Command = TypeVar("Command", bound=Callable[..., Any])


class BulkCommand(NamedTuple):
    """An act on many jobs, and its words."""

    row: Operation[Any, BulkView]
    verb: str  # `Retry`
    doing: str  # `retrying`
    done: str  # `retried`
    confirms: bool = False  # it cannot be undone


def yes_option(command: Command) -> Command:
    return click.option("--yes", is_flag=True, help="With --all: do not ask for confirmation.")(command)


def bulk_options(request: type[BulkRequest], *more: str) -> Callable[[Command], Command]:
    """Options of the filter, and of the act."""

    def decorate(command: Command) -> Command:
        command = click.option("--json", "as_json", is_flag=True, help="With --all: print the end of the act as JSON.")(
            command
        )
        command = request_options(request, *FILTERS, *more, "rate", "dry_run")(command)
        return click.option("--all", "for_all", is_flag=True, help="Act on all jobs that match the filters.")(command)

    return decorate


def check_choice(named: Sequence[str], for_all: bool, options: dict[str, Any], kind: str = "a job") -> None:
    """Raise UsageError unless either jobs, or what `kind` says, are named, or --all is given."""
    if for_all and named:
        raise click.UsageError(f"Name {kind}, or give --all with filters: not both.")
    if not for_all and not named:
        raise click.UsageError(f"Name {kind}, or give --all with filters.")
    used = next((name for name in given(options) if not for_all), None)
    if used is not None:
        raise click.UsageError(f"--{used.replace('_', '-')} is an option of --all.")


def perform_for_all(
    command: BulkCommand, request: BulkRequest, url: str | None, *, is_confirmed: bool, as_json: bool
) -> None:
    """Execute the act and end the command. Ctrl-C stops the act: what is done stays done."""
    with connected(url) as client:
        if request.dry_run:
            _print_dry_run(command, _counted(client, command, request), as_json)
            return
        if command.confirms and not is_confirmed:
            _confirm(command, _counted(client, command, request))
        view = _act(client, command, replace(request, id=token_hex(16), lease=LEASE))
    _print_end(command, view, as_json)


def _counted(client: Client[bytes], command: BulkCommand, request: BulkRequest) -> BulkView:
    view: BulkView = client.operation(command.row, replace(request, dry_run=True, id=token_hex(16)))
    return view


def _confirm(command: BulkCommand, view: BulkView) -> None:
    if not sys.stdin.isatty():
        fail(
            f"{command.done} jobs cannot be restored, and standard input is no terminal to confirm it: add --yes", USAGE
        )
    if view.of:
        click.confirm(f"{command.verb} {_jobs(view.of)}{_in_quarantine(view)}?", abort=True)


def _act(client: Client[bytes], command: BulkCommand, request: BulkRequest) -> BulkView:
    from dragoman.sdk.errors import NotFound

    assert request.id is not None
    ref = BulkRef(id=request.id)
    view: BulkView | None = None
    with ProgressBar(command.doing, "jobs") as bar:
        try:
            view = client.operation(command.row, request)
            while not view.over:
                bar.update(view.done + view.left_out, view.of)
                time.sleep(INTERVAL)
                view = client.operation(BULK_ACT, ref)
        except KeyboardInterrupt:
            bar.clear()
            _stop(client, command, ref)
        except NotFound:
            bar.clear()
            known = f"at least {view.done} of {_jobs(view.of)} are {command.done}; " if view is not None else ""
            fail(f"the broker has been restarted: {known}run the command again for the others", FAILED)
    return view


def _stop(client: Client[bytes], command: BulkCommand, ref: BulkRef) -> NoReturn:
    """Stop the act, say what is done, and end the command."""
    from dragoman.sdk.errors import NotFound

    after_echo = "\n" if sys.stderr.isatty() else ""  # a terminal shows ^C before it
    try:
        view = client.operation(STOP_BULK_ACT, ref)
    except NotFound:
        text = f"stopped: no job is {command.done}"
    else:
        text = f"stopped: {view.done} of {_jobs(view.of)} are {command.done}, the others are unchanged"
    click.echo(f"{after_echo}{text}; run the command again to continue", err=True)
    raise click.exceptions.Exit(INTERRUPTED)


def _print_dry_run(command: BulkCommand, view: BulkView, as_json: bool) -> None:
    if as_json:
        print_json(view)
        return
    if not view.of:
        click.echo("There are no such jobs.")
        return
    click.echo(f"{_jobs(view.of)}{_in_quarantine(view)} would be {command.done}" + ("" if view.jobs else "."))
    if view.of > len(view.jobs):
        click.echo(f"The first {len(view.jobs)}:")
    rows = [
        (each.id, each.service, each.outcome or each.state, age(each.ended or each.created), each.reason)
        for each in view.jobs
    ]
    print_table(("JOB", "SERVICE", "STATE", "AGE", "REASON"), rows, "", fits=True)


def _print_end(command: BulkCommand, view: BulkView, as_json: bool) -> None:
    if as_json:
        print_json(view)
    else:
        click.echo(f"{_jobs(view.done)} {'is' if view.done == 1 else 'are'} {command.done}")
    if view.left_out:
        warn(f"{_jobs(view.left_out)} left out: {view.left_out_reason}")
    if view.problem:
        left = view.of - view.done - view.left_out
        fail(f"stopped before the end, {_jobs(left)} are unchanged: {view.problem}", FAILED)


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


def _in_quarantine(view: BulkView) -> str:
    return f", {view.quarantined:,} of them in quarantine," if 0 < view.quarantined < view.of else ""
