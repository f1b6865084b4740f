"""`dragoman serve`: run a broker."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import quote, urlencode

import click

from dragoman import __version__
from dragoman.cli.exit_codes import DISK, FAILED, TAKEN, USAGE, fail, unwritable, warn
from dragoman.cli.program_name import program_name
from dragoman.cli.progress_bar import ProgressBar

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from dragoman.server.config import Config, SettingSource
    from dragoman.server.input_taps import InputTaps
    from dragoman.server.serve import Opened

SETTINGS = [
    click.option("--config", "path", metavar="FILE", help="Read settings from a TOML file."),
    click.option("--data", metavar="DIR|memory", help="Folder of the store; 'memory' stores nothing."),
    click.option("--log", type=click.Choice(["auto", "human", "json"]), help="Format of the log on standard error."),
    click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"])),
    click.option(
        "--drain-timeout", type=float, metavar="S", help="Seconds that running jobs may take to end on SIGTERM."
    ),
    click.option("--loop", type=click.Choice(["auto", "uvloop", "asyncio"]), help="Event loop."),
    click.option(
        "--ladders/--no-ladders",
        default=None,
        help="Record messages of jobs, without payloads. On by default.",
    ),
    click.option("--cluster", metavar="nats://HOST,...", help="Join a cluster of brokers on these NATS servers."),
    click.option("--cluster-name", metavar="NAME", help="Name of the cluster. Default: dragoman."),
    click.option(
        "--cluster-credentials", metavar="FILE", help="File with a NATS token, user:password, nkey seed or credentials."
    ),
    click.option("--broker-name", metavar="NAME", help="Name of this broker in its cluster. Default: the host name."),
    click.option("--strict/--no-strict", default=None, help="Check every invariant after every step. Slow."),
    click.option(
        "--set", "others", multiple=True, metavar="NAME=VALUE", help="Any setting that `dragoman config` prints."
    ),
]


@click.command(
    epilog="""\b
Examples:
  dragoman serve
  dragoman serve "pingpong+tcp://127.0.0.1:7401?frontend=7402&service=resize"
  dragoman serve "pingpong+ipc:///tmp/workers.ipc?frontend=ipc%3A%2F%2F%2Ftmp%2Fcallers.ipc" --data memory
""",
)
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("--no-access", is_flag=True, help="Confirm that this broker has no access folder any more.")
@click.option("--record", metavar="FILE", help="Record all inputs in a new file, for `dragoman replay`.")
@click.option(
    "--record-size",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Maximum size of the recording, in bytes; then it ends. Default: 268435456.",
)
@click.option("--record-payloads", is_flag=True, help="Record payloads, too. Otherwise they are replaced.")
def serve(
    urls: tuple[str, ...],
    path: str | None,
    no_access: bool,
    record: str | None,
    record_size: int | None,
    record_payloads: bool,
    **flags: object,
) -> None:
    """Run a broker.

    Without a URL it listens on loopback, on the default port of every dialect. With URLs, it listens on exactly those.
    A URL is dialect+transport://address?options.

    SIGTERM and SIGINT drain the broker: new jobs are refused, running ones may end. A second signal stops it at once.
    SIGHUP reloads the access folder, keys and certificates.
    """
    # structlog loads rich wherever it is installed, for tracebacks that the broker's log does not have. That took a
    # fifth of the broker's start.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]

    from dragoman.access.problems import AccessError
    from dragoman.sdk.address import AddressError
    from dragoman.server import serve as server
    from dragoman.server.config import PATH_VARIABLE
    from dragoman.server.datadir import DataFolderLocked
    from dragoman.store.errors import StoreError, StoreInUse
    from dragoman.streams.sockets import AddressInUse

    settings = load_settings(urls, path, flags)
    if record is not None and settings.cluster:
        fail("--record cannot record a broker in a cluster; leave out --record or --cluster", USAGE)
    taps = _recorder(record, record_size, record_payloads)
    try:
        with ProgressBar("upgrading the store", "rows") as bar:
            announce = partial(_announce, settings=settings)
            file = path or os.environ.get(PATH_VARIABLE)
            code = server.run(
                settings,
                os.environ,
                announce,
                __version__,
                bar.update if bar.is_shown else None,
                Path(file) if file else None,
                no_access,
                taps,
            )
    except AccessError as error:
        for problem in error.problems:
            warn(str(problem))
        raise click.exceptions.Exit(USAGE) from None
    except AddressError as error:
        fail(str(error), USAGE)
    except DataFolderLocked as error:
        fail(f"{error}; stop it, or choose another folder with --data", TAKEN)
    except AddressInUse as error:
        fail(f"{error.strerror or error}; stop it, or give other addresses to `dragoman serve`", TAKEN)
    except StoreInUse as error:
        fail(f"{error}; stop it, or choose another folder with --data", TAKEN)
    except StoreError as error:
        fail(str(error), DISK)
    except OSError as error:
        fail(_start_problem(error, settings), DISK if error.filename else USAGE)
    raise click.exceptions.Exit(code)


def _recorder(file: str | None, size: int | None, payloads: bool) -> InputTaps:
    """The recorder, or taps that record nothing."""
    from dragoman.server.input_taps import NO_TAPS

    if file is None:
        if size is not None or payloads:
            fail("--record-size and --record-payloads have no effect without --record FILE; add it", USAGE)
        return NO_TAPS
    from dragoman.recording.file import DEFAULT_SIZE
    from dragoman.recording.recorder import Recorder

    try:
        return Recorder(Path(file), size or DEFAULT_SIZE, payloads=payloads)
    except FileExistsError:
        fail(f"cannot record to {file}: the file exists; choose another name, or remove it", TAKEN)
    except OSError as error:
        fail(f"cannot record to {file}: {error.strerror or error}; choose another place for --record", DISK)


for option in reversed(SETTINGS):
    serve = option(serve)


def _start_problem(error: OSError, settings: Config) -> str:
    """The message for an error of the operating system, or of a check whose message has the next step."""
    from dragoman.server.config import default_data_dir

    if not error.filename:
        return f"cannot start: {error.strerror or error}"
    place = Path(error.filename)
    folder = Path(settings.data).expanduser() if settings.data else default_data_dir(os.environ)
    is_system_error = error.errno is not None and error.strerror == os.strerror(error.errno)
    if is_system_error and (place.is_relative_to(folder) or folder.is_relative_to(place)):
        return (
            f"cannot use the data folder {folder}: {error.strerror} ({place}); choose a folder that this user may "
            "create or write to with --data DIR, or store nothing with --data memory"
        )
    return f"cannot start: {error.strerror or error} ({place})"


def load_settings(urls: tuple[str, ...], path: str | None, flags: dict[str, object]) -> Config:
    return load_sourced(urls, path, flags)[0]


def load_sourced(
    urls: tuple[str, ...], path: str | None, flags: dict[str, object]
) -> tuple[Config, list[SettingSource]]:
    """The settings and their sources."""
    from dragoman.server.config import ConfigError, load, unknown_variables

    for warning in unknown_variables(os.environ):
        warn(f"warning: {warning}")
    for each in cast(tuple[str, ...], flags.pop("others")):
        name, equals, value = each.partition("=")
        if not equals:
            fail(f"--set {each}: write NAME=VALUE", USAGE)
        flags[name] = value.split() if name == "listen" else value
    try:
        return load({"listen": urls, **flags}, os.environ, path)
    except ConfigError as error:
        fail(str(error), USAGE)


def _announce(opened: Opened, folder: Path | None, settings: Config) -> None:
    from dragoman.server.log import make_log, starts_in_json

    if starts_in_json(settings.log):
        _log_start(make_log(settings.log, settings.log_level), opened, folder)
        return
    try:
        _print_places(opened, _kept(settings, folder), settings.drain_timeout)
    except OSError as error:
        fail(unwritable(error), FAILED)


def _log_start(log: FilteringBoundLogger, opened: Opened, folder: Path | None) -> None:
    """One log line for each address, and one for the broker."""
    from dragoman.cli.build_info import how_built

    for listener, places in opened:
        for role, address in places:
            log.info("listener opened", dialect=listener.address.dialect, address=address, role=role)
    data = "memory" if folder is None else str(folder)
    log.info("broker started", version=__version__, build=how_built(), process=os.getpid(), data=data)


def _kept(settings: Config, folder: Path | None) -> str:
    """Return where background jobs are kept."""
    if settings.cluster:
        return f"background jobs are kept in the logs of cluster {settings.cluster_name}"
    return "nothing is kept" if folder is None else f"background jobs are kept in {folder}"


def _print_places(opened: Opened, kept: str, drain_timeout: float) -> None:
    """Print one line for each address, and commands to try next."""
    from dragoman.cli.build_info import how_built

    for url in _dashboards(opened):
        click.echo(f"Dashboard: {url}")
    click.echo(f"dragoman {__version__} ({how_built()}) is listening (process {os.getpid()})")
    for listener, places in opened:
        dialect = listener.address.dialect
        for who, where in places:
            click.echo(f"  {dialect:<10} {where:<34} {who:<8} {listener.notes[0]}")
        for note in listener.notes[1:]:
            click.echo(f"  {dialect:<10} {note}")
    click.echo(f"  ({kept}; stop with Ctrl-C, running jobs may end within {drain_timeout:g} s)")
    hint = _what_to_try(opened)
    if hint:
        click.echo("Try, in two other terminals:")
        for line in hint:
            click.echo(f"  {line}")
    sys.stdout.flush()


def _dashboards(opened: Opened) -> list[str]:
    """The addresses of the dashboard that a browser can open."""
    return [
        f"{where.replace('//0.0.0.0:', '//localhost:').replace('//[::]:', '//localhost:')}/"
        for listener, places in opened
        for _, where in places
        if where.startswith(("http://", "https://")) and listener.address.options.get("dashboard") != "off"
    ]


def _what_to_try(opened: Opened) -> list[str]:
    program = program_name()
    for listener, places in opened:
        where = dict(places)
        workers, callers = where.get("workers", where.get("both")), where.get("callers", where.get("both"))
        if "auth" in listener.address.options:
            continue  # keys and tokens of clients are not known here
        # curl needs no hint, and with TLS the files of a client are not known here.
        if workers is not None and callers is not None and not callers.startswith(("http:", "https:", "tls:")):
            options = listener.address.options
            service = options.get("service", "default")
            worker = _address(listener.address.dialect, workers, options, ("service", "edition"))
            caller = _address(listener.address.dialect, callers, options, ("service",))
            return [
                f"""{program} worker --exec "tr a-z A-Z" --service {shlex.quote(service)} --connect {worker}""",
                f"""{program} call {shlex.quote(service)} "hello" --connect {caller}""",
            ]
    return []


def _address(dialect: str, place: str, options: Mapping[str, str], names: tuple[str, ...]) -> str:
    """A URL for a worker or a caller, with those options of the listener that it needs."""
    from dragoman.dialects.catalogue import DIALECTS

    query = urlencode({name: options[name] for name in names if name in options}, quote_via=quote)
    scheme = "" if place.partition("://")[0] in DIALECTS[dialect].schemes else f"{dialect}+"
    return shlex.quote(f"{scheme}{place}?{query}" if query else f"{scheme}{place}")
