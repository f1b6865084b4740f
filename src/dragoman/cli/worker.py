"""`dragoman worker`: do jobs."""

from __future__ import annotations

import logging
import shlex
import shutil
import sys

import click

from dragoman.cli.exits import USAGE, give_up


@click.command(
    epilog="""\b
Examples:
  dragoman worker mypackage.images:resize --service resize \\
      --connect "pingpong+tcp://127.0.0.1:7401?service=resize"
  dragoman worker --exec "convert - -resize 10% -" --connect pingpong+tcp://127.0.0.1:7401
  dragoman worker --exec "gzip -c" --service gzip --concurrency 4 --connect memodb+tcp://127.0.0.1:7405
""",
)
@click.argument("target", required=False, metavar="[MODULE:FUNCTION]")
@click.option("--exec", "command", metavar="CMD", help="Run a program for each job instead: payload in, result out.")
@click.option(
    "--service",
    "services",
    metavar="NAME",
    multiple=True,
    help="A service to offer; may be repeated. Where the wire has no names, the URL's service=.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    metavar="N",
    help="Do so many jobs at once: as N workers, over one connection where the dialect allows it.",
)
@click.option("--connect", "url", metavar="URL", required=True, help="The broker's address for workers.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def worker(
    target: str | None, command: str | None, services: tuple[str, ...], concurrency: int, url: str, log_level: str
) -> None:
    """Do jobs, one at a time or --concurrency at once, until told to stop.

    MODULE:FUNCTION is called with each job's payload (bytes) and returns the result (bytes). It runs in a child
    process, so that a long job never keeps the heartbeats from the broker. With --exec, a program gets the payload on
    its standard input and gives the result on its standard output; an exit code other than 0 is a failure.

    SIGTERM and SIGINT finish the jobs in hand, then leave. A second signal stops at once.
    """
    from dragoman.sdk import worker as sdk
    from dragoman.sdk.address import AddressError
    from dragoman.sdk.child import CannotLoad
    from dragoman.sdk.peoples import worker_target
    from dragoman.sdk.workers import run_worker

    if (target is None) == (command is None):
        give_up("give either MODULE:FUNCTION or --exec CMD", USAGE)
    logging.basicConfig(
        stream=sys.stderr, level=log_level.upper(), format="%(asctime)s %(levelname)s %(message)s", force=True
    )
    try:
        place = worker_target(url, services)
        handler: sdk.Handler
        if target is not None:
            function = sdk.FunctionHandler(target, concurrency)
            function.start()
            handler = function
        else:
            handler = sdk.ProgramHandler(_check_command(command or ""))
        code = run_worker(place, handler, concurrency)
    except AddressError as error:
        give_up(str(error), USAGE)
    except CannotLoad as error:
        give_up(f"cannot run {target}: {error}", USAGE)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(130) from None
    raise click.exceptions.Exit(code)


def _check_command(command: str) -> str:
    try:
        words = shlex.split(command)
    except ValueError as error:
        give_up(f"cannot read the command {command!r}: {error}", USAGE)
    if not words:
        give_up("--exec needs a command", USAGE)
    if shutil.which(words[0]) is None:
        give_up(f"there is no program {words[0]!r} to run (looked in PATH)", USAGE)
    return command
