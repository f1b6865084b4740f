"""The access folder that a command reads or changes: its options, errors, and the request to reload."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dragoman.access.folder import load_file, load_folder, principal_path
from dragoman.access.location import AccessPlaces, check_never_had
from dragoman.access.principal_file import check_principal_name
from dragoman.access.private_files import own_uid
from dragoman.access.problems import AccessError
from dragoman.access.table import AccessTable
from dragoman.cli.exit_codes import DISK, FAILED, USAGE, fail, warn
from dragoman.cli.tables import plain
from dragoman.core.rights import Right

if TYPE_CHECKING:
    from dragoman.access.identities import Identity
    from dragoman.access.private_files import own_uid
from dragoman.access.principal_file import PrincipalEntry

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = [
    click.option("--access", metavar="DIR", help="The access folder.  [default: that of the broker's settings]"),
    click.option("--config", metavar="FILE", help="Settings of the broker, as in `dragoman serve`."),
    click.option("--data", metavar="DIR", help="Data folder of the broker, as in `dragoman serve`."),
]
_RIGHTS = [
    click.option("--call", multiple=True, metavar="PATTERN", help="Allow calls of these services."),
    click.option("--work", multiple=True, metavar="PATTERN", help="Allow workers of these services."),
    click.option("--see", multiple=True, metavar="PATTERN", help="Allow to see jobs and workers of these services."),
    click.option(
        "--administer", multiple=True, metavar="PATTERN", help="Allow to manage these services; includes --see."
    ),
]


def folder_options(command: Command) -> Command:
    """Add the options that find the access folder. The command gets them as `**where`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def rights_options(command: Command) -> Command:
    """Add an option for each right. Each may be repeated; `*` at the end of a pattern stands for any characters."""
    for option in reversed(_RIGHTS):
        command = option(command)
    return command


@contextmanager
def ending_access_errors() -> Iterator[None]:
    """End the command with a line for each problem of the access folder; or with the error of the disk."""
    try:
        yield
    except AccessError as error:
        for problem in error.problems:
            warn(str(problem))
        raise click.exceptions.Exit(USAGE) from None
    except OSError as error:
        if error.filename is None:
            raise
        fail(f"{error.filename}: {error.strerror or error}", DISK)


@dataclass(frozen=True, slots=True)
class AccessFolder:
    """The access folder of a broker, which may not exist yet."""

    places: AccessPlaces
    path: Path | None  # None: it does not exist

    @classmethod
    def find(cls, access: str | None, config: str | None, data: str | None, *, to_create: bool = False) -> AccessFolder:
        """Find it as `dragoman serve` does. An error ends the command."""
        places = access_places(access, config, data)
        return cls(places, places.find(to_create=to_create))

    @property
    def uid(self) -> int:
        """The user who may own files here besides root. If root runs the command, that is the owner of the folder: the
        broker's user."""
        return file_owner(self.path)

    def table(self) -> AccessTable:
        """The table; empty if there is no folder. Raises AccessError, also if a broker had a table before."""
        if self.path is None:
            check_never_had(self.places.data)
            return AccessTable([])
        return load_folder(self.path, self.uid)

    def existing(self) -> Path:
        """The folder. If there is none, the command ends."""
        if self.path is None:
            check_never_had(self.places.data)
            fail(f"there is no access folder; `dragoman access allow` creates {self.places.place_for_new()}", USAGE)
        return self.path

    def entry(self, name: str) -> PrincipalEntry:
        """One principal. Other files are not read: a problem in one of them must not prevent a revocation."""
        from dragoman.access.private_files import checked_folder

        path = self.existing()
        self._check_exists(name)
        with checked_folder(path, self.uid) as handle:
            return load_file(path, name, self.uid, handle)

    def allow(
        self, name: str, identities: Sequence[Identity], patterns: Mapping[str, Sequence[str]], command: str
    ) -> None:
        """Add identities and rights to a principal, and have the broker reload. A missing folder is created."""
        from dragoman.access import changes
        from dragoman.access.private_files import make_folder

        try:
            check_principal_name(name)
        except ValueError as error:
            fail(str(error), USAGE)
        path = self.path or self.places.place_for_new()
        is_new = make_folder(path)
        head = f"# Principal {name}, created by `dragoman {command}`. Edits by hand are kept.\n"
        given = {right: patterns[right] for right in Right}
        try:
            entry = changes.allow(path, file_owner(path), name, identities, given, head)
        except BaseException:
            if is_new:
                path.rmdir()  # an empty folder is a table that admits no principal
            raise
        rights = [
            f"{right} {', '.join(entry.rights.patterns(right))}" for right in Right if entry.rights.patterns(right)
        ]
        may = f"may {'; '.join(rights)}" if rights else f"has no rights yet; give it some: dragoman access allow {name}"
        note(f"{name} {may}")
        note(f"written to {entry.file}")
        if is_new:
            note(f"{path} is new: a broker that reads it admits its own user, root, and the principals there")
        tell_broker(self.places.data)

    def revoke(self, name: str, identity: Identity) -> None:
        """Remove an identity of a principal, and have the broker reload."""
        from dragoman.access import changes

        entry = changes.revoke(self.existing(), self.uid, name, identity)
        note(f"{identity.kind} {identity.label} is removed from {entry.file}")
        if not entry.identities:
            note(f"{name} has no identity left; to remove it: dragoman access remove {name}")
        tell_broker(self.places.data)

    def remove(self, name: str) -> None:
        """Delete a principal, and have the broker reload."""
        from dragoman.access import changes

        self._check_exists(name)
        path = changes.remove(self.existing(), self.uid, name)
        note(f"{path} is removed: {name} has no access any more. Its jobs that wait or run are kept")
        tell_broker(self.places.data)

    def _check_exists(self, name: str) -> None:
        if not os.path.lexists(principal_path(self.existing(), name)):
            fail(f"there is no principal {name!r}; `dragoman access show` lists all", FAILED)


def access_places(access: str | None, config: str | None, data: str | None) -> AccessPlaces:
    """The places of the access folder, by the settings of the broker. An error ends the command."""
    from dragoman.server.config import PATH_VARIABLE, ConfigError, default_data_dir, load

    try:
        settings, _ = load({"access": access, "data": data}, os.environ, config)
    except ConfigError as error:
        fail(str(error), USAGE)
    file = config or os.environ.get(PATH_VARIABLE)
    folder = Path(settings.data).expanduser() if settings.data else default_data_dir(os.environ)
    in_memory = settings.data == "memory"
    return AccessPlaces(settings.access, Path(file) if file else None, None if in_memory else folder)


def file_owner(path: Path | None) -> int:
    """The user of this process; of root, the owner of the path."""
    return own_uid() or (os.stat(path).st_uid if path is not None else 0)


def tell_broker(data: Path | None) -> None:
    """Make a change known to the broker that runs with this data folder, and print its answer. Every command that
    changes the folder ends here."""
    from dragoman.cli.running_broker import broker_process, reload_broker

    by_hand = "run `dragoman access reload`, or send SIGHUP to it: kill -HUP PID"
    if data is None:
        note(f"A running broker does not know this change yet: {by_hand}")
        return
    try:
        process = broker_process(data)
        answer = reload_broker(data, process) if process is not None else None
    except OSError as error:
        note(f"A running broker does not know this change yet ({error.strerror or error}): {by_hand}")
        return
    if process is None:
        note(f"No broker runs with the data folder {data}; the next one reads the change at its start")
    elif answer is None:
        note(f"The broker (process {process}) was told and has not answered; its log has the result")
    elif answer.problems:
        for problem in answer.problems:
            warn(problem)
        fail(f"the broker (process {process}) has not accepted the change; it goes on with what it had", FAILED)
    else:
        were = "1 connection was" if answer.disconnected == 1 else f"{answer.disconnected} connections were"
        ended = f"; {were} closed" if answer.disconnected else ""
        note(f"The broker (process {process}) has accepted the change{ended}")


def note(line: str) -> None:
    """Print a line about the result to standard error: standard output is for the value that the command makes."""
    click.echo(plain(line), err=True)
