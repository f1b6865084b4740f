"""The command line: one module a command."""

from __future__ import annotations

import sys

import click

from dragoman import __version__
from dragoman.cli.built import how_built
from dragoman.cli.call import call
from dragoman.cli.config import config
from dragoman.cli.diary import diary
from dragoman.cli.exits import USAGE
from dragoman.cli.serve import serve
from dragoman.cli.worker import worker


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with `dragoman serve`; it prints what to try next. Every command has its own --help.",
)
@click.version_option(__version__, prog_name="dragoman", message=f"%(prog)s %(version)s ({how_built()})")
def dragoman() -> None:
    """A job broker that speaks its workers' protocols as they are.

    Callers submit jobs to named services, workers do them, and the broker stands between: it knows who is alive and
    who is idle, and gives every caller exactly one answer.
    """


for command in (serve, worker, call, config, diary):
    dragoman.add_command(command)


def main() -> None:
    """What the `dragoman` script runs."""
    try:
        sys.exit(dragoman.main(standalone_mode=False))
    except click.exceptions.Abort:
        sys.exit(130)
    except click.exceptions.Exit as exit:
        sys.exit(exit.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(USAGE)
