"""The command line. Each command has a module of its own."""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from dragoman import __version__
from dragoman.cli.exit_codes import DONE, FAILED, INTERRUPTED, NOT_INSTALLED, USAGE, unwritable, warn
from dragoman.sdk.extras import MissingPackage, needed_by

if TYPE_CHECKING:
    from dragoman.operations.operation import Operation

# Sections of the help, in their order, with the commands that have modules of their own.
SECTIONS = {
    "Run": [
        "demo",
        "serve",
        "worker",
        "top",
        "config",
        "health",
        "broker",
        "listeners",
        "cluster",
        "store",
        "export",
        "import",
        "replay",
    ],
    "Jobs": [
        "call",
        "enqueue",
        "result",
        "job",
        "jobs",
        "group",
        "why",
        "ladder",
        "cancel",
        "retry",
        "delete",
        "quarantine",
        "schedule",
        "tail",
    ],
    "Access": ["access", "keys", "token"],
    "Services and workers": ["services", "workers", "pause", "resume", "limit", "purge", "drain"],
}
MODULES = {name: name for names in SECTIONS.values() for name in names} | {"import": "import_jobs"}
SECTION_OF = {
    "jobs": "Jobs",
    "groups": "Jobs",
    "quarantine": "Jobs",
    "bulk": "Jobs",
    "schedules": "Jobs",
}  # by the group of an operation; of all others the last one


class Sections(click.Group):
    """A group whose help lists its commands in sections. A command is loaded when it is used: to load all of them takes
    longer than most commands run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in sections().values() for name in names]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in MODULES:
            command: click.Command = getattr(import_module(f"dragoman.cli.{MODULES[name]}"), MODULES[name])
            return command
        return generic_commands().get(name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. The error for an unknown one suggests the nearest name."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            from dragoman.sdk.address import nearest

            ctx.fail(f"No such command {name!r}{nearest(name, self.list_commands(ctx))}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in sections().items():
            width = formatter.width - 6 - max(map(len, names))
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl([(name, each.get_short_help_str(width)) for name, each in commands if each])


def sections() -> dict[str, list[str]]:
    """The names of all commands by section: those of SECTIONS, and those that the table of operations makes."""
    found = {title: list(names) for title, names in SECTIONS.items()}
    for name, row in generic_rows().items():
        found[SECTION_OF.get(row.group, "Services and workers")].append(name)
    return found


def generic_commands() -> dict[str, click.Command]:
    """Commands of operations that have no module of their own, by name."""
    from dragoman.cli.operation_commands import commands_from

    return {str(each.name): each for each in commands_from(generic_rows().values())}


def generic_rows() -> dict[str, Operation[Any, Any]]:
    from dragoman.cli.operation_commands import command_name
    from dragoman.operations.table import OPERATIONS

    named = {command_name(row): row for row in OPERATIONS.values()}
    return {name: row for name, row in named.items() if name.split()[0] not in MODULES}


def print_version(ctx: click.Context, option: click.Parameter, is_given: bool) -> None:
    if is_given:
        from dragoman.cli.build_info import how_built

        click.echo(f"dragoman {__version__} ({how_built()})")
        ctx.exit()


@click.group(
    cls=Sections,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with `dragoman serve`; it prints what to try next. Every command has its own --help.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_version,
    help="Show the version and exit.",
)
def dragoman() -> None:
    """A job broker that speaks its workers' protocols as they are.

    Callers submit jobs to named services, and workers run them. The broker tracks which workers are alive and idle, and
    sends every caller exactly one answer.
    """


def main() -> None:
    """Run a command and end the process with its exit code."""
    _escape_unknown_characters()
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


def _escape_unknown_characters() -> None:
    """Let standard output escape the characters that its encoding does not have, as standard error does. The encoding
    of pipes on Windows has few."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_unwritten() -> None:
    """Drop output that still cannot be written: the interpreter would print an error about it at its end."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _run() -> int:
    """Run one command and return its exit code."""
    words = [each for each in sys.argv[1:2] if not each.startswith("-")]
    try:
        with needed_by(" ".join(["dragoman", *words])):
            code: int | None = dragoman.main(standalone_mode=False)
    except MissingPackage as error:
        warn(str(error))
        return NOT_INSTALLED
    except click.exceptions.Abort:
        return INTERRUPTED
    except click.exceptions.Exit as exit:
        return exit.exit_code
    except click.ClickException as error:
        error.show()
        return USAGE
    return code or DONE
