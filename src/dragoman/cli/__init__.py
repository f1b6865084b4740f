"""The command line: one module a command."""

from __future__ import annotations

import os
import sys

import click

from dragoman import __version__
from dragoman.cli.build_info import how_built
from dragoman.cli.call import call
from dragoman.cli.cancel import cancel
from dragoman.cli.config import config
from dragoman.cli.drain import drain
from dragoman.cli.enqueue import enqueue
from dragoman.cli.exit_codes import DONE, FAILED, INTERRUPTED, USAGE, unwritable, warn
from dragoman.cli.health import health
from dragoman.cli.job import job
from dragoman.cli.jobs import jobs
from dragoman.cli.operation_commands import command_name, commands_from
from dragoman.cli.pause import pause
from dragoman.cli.purge import purge
from dragoman.cli.result import result
from dragoman.cli.resume import resume
from dragoman.cli.retry import retry
from dragoman.cli.schedule import cron
from dragoman.cli.serve import serve
from dragoman.cli.services import services
from dragoman.cli.store import diary
from dragoman.cli.why import why
from dragoman.cli.worker import worker
from dragoman.cli.workers import workers
from dragoman.operations.table import OPERATIONS

# Sections of the help, in their order.
SECTIONS = {
    "Run": [serve, worker, config, health, diary],
    "Jobs": [call, enqueue, result, job, jobs, why, cancel, retry, cron],
    "Services and workers": [services, workers, pause, resume, purge, drain],
}
SECTION_OF = {"jobs": "Jobs", "cron": "Jobs"}  # by the group of an operation; of all others the last one
BY_HAND = {each.name for section in SECTIONS.values() for each in section}
for row in OPERATIONS.values():
    if command_name(row).split()[0] not in BY_HAND:
        SECTIONS[SECTION_OF.get(row.group, "Services and workers")] += commands_from([row])


class Sections(click.Group):
    """A group whose help lists its commands by what they are about."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            width = formatter.width - 6 - max(len(str(each.name)) for each in commands)
            with formatter.section(title):
                formatter.write_dl([(str(each.name), each.get_short_help_str(width)) for each in commands])


@click.group(
    cls=Sections,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with `dragoman serve`; it prints what to try next. Every command has its own --help.",
)
@click.version_option(__version__, prog_name="dragoman", message=f"%(prog)s %(version)s ({how_built()})")
def dragoman() -> None:
    """A job broker that speaks its workers' protocols as they are.

    Callers submit jobs to named services, workers do them, and the broker stands between: it knows who is alive and
    who is idle, and gives every caller exactly one answer.
    """


for commands in SECTIONS.values():
    for command in commands:
        dragoman.add_command(command)


def main() -> None:
    """Runs the `dragoman` script."""
    try:
        code = _run()
        if code == DONE and sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.strerror is None:
            raise
        warn(unwritable(error))
        code = FAILED
    if code != DONE:
        _drop_unwritten()
    sys.exit(code)


def _drop_unwritten() -> None:
    """After an error, output that still cannot be written is none: the interpreter would complain of it at its end."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _run() -> int:
    """Runs one command; returns its exit code."""
    try:
        code: int | None = dragoman.main(standalone_mode=False)
    except click.exceptions.Abort:
        return INTERRUPTED
    except click.exceptions.Exit as exit:
        return exit.exit_code
    except click.ClickException as error:
        error.show()
        return USAGE
    return code or DONE
