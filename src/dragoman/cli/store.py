"""`dragoman store`: check, recover, accept and rescue the store of background jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from dragoman.cli.exit_codes import DISK, TAKEN, USAGE, fail
from dragoman.cli.progress_bar import ProgressBar

T = TypeVar("T")


@click.group()
def store() -> None:
    """Check or repair the store of background jobs."""


@store.command()
@click.argument("folder", metavar="DIR")
def check(folder: str) -> None:
    """Check the store in this folder, with all checksums. Exit code 0, or 74 if it is damaged.

    Changes nothing, except that a file with the name of an earlier release gets its present name, `store.db`.
    """
    from dragoman.store import recovery

    with ProgressBar("checking the store", "rows") as bar:
        found = _with_folder(folder, lambda path: recovery.examine(path, bar.update))
    if found.sentence:
        for line in found.jobs:
            click.echo(f"affected: {line}")
        advice = f"To recover the readable jobs, run: dragoman store recover {folder}"
        fail(f"the store in {folder} is damaged: {found.sentence}. {advice}", DISK)
    click.echo("in order")


@store.command()
@click.argument("folder", metavar="DIR")
@click.option("--force", is_flag=True, help="Recover even if the store is in order.")
def recover(folder: str, force: bool) -> None:
    """Make a new store from the readable rows of a damaged one. The damaged file is kept beside it."""
    from dragoman.store import recovery

    with ProgressBar("recovering the store", "rows") as bar:
        found = _with_folder(folder, lambda path: recovery.recover(path, force=force, progress=bar.update))
    if found is None:
        click.echo("in order: there is nothing to recover")
        return
    click.echo(f"recovered: {found.jobs} jobs, {found.fates} of them with their status; {found.notes} values")
    if found.lost:
        click.echo(f"damage: {found.lost}")
    if found.left_out:
        click.echo(f"left out: {found.left_out} jobs or values that cannot be read")
    if found.untold:
        click.echo(f"lost: the history or the reason of {found.untold} jobs; their outcomes are recovered")
    if found.as_submitted:
        click.echo(f"lost: the status of {found.as_submitted} jobs; they are reset to submitted, and run again")
    if found.places:
        click.echo(f"skipped: {found.places} parts of the file that cannot be read, with an unknown number of rows")
    if found.epoch is not None:
        click.echo(f"written: a new epoch, {found.epoch}, above those of all earlier runs; the old one was no number")
    for line in found.missing:
        click.echo(line)
    click.echo(f"the damaged file is {found.damaged}")


@store.command()
@click.argument("folder", metavar="DIR")
def accept(folder: str) -> None:
    """Accept the store in this folder as it is, for example a restored backup.

    A broker does not start if its store holds less than it has acknowledged. This command removes that count. If there
    is no store at all, it makes an empty one.
    """
    from dragoman.store import recovery

    _with_folder(folder, recovery.accept)
    click.echo("accepted: the next broker starts with the store in this folder")


@store.command()
@click.argument("pid", type=click.IntRange(min=1), metavar="PID")
@click.argument("folder", metavar="DIR")
def rescue(pid: int, folder: str) -> None:
    """Copy the store that the broker with process id PID has open into the empty folder DIR.

    For a store that was removed while its broker runs: the broker has the last copy. Needs Linux and the user id of the
    broker.
    """
    from dragoman.store import recovery
    from dragoman.store.errors import StoreError
    from dragoman.store.rescue import rescue as save

    path = Path(folder).expanduser()
    try:
        save(pid, path)
        found = recovery.check(path)
    except StoreError as error:
        fail(str(error), DISK)
    if found:
        fail(f"saved in {path}, but damaged: {found}", DISK)
    click.echo(f"saved in {path}: in order. Stop the broker with SIGTERM, and start one with --data {path}")


def _with_folder(folder: str, act: Callable[[Path], T]) -> T:
    """Call `act` while the folder is locked against brokers and other commands."""
    from dragoman.server.datadir import DataFolderLocked, FolderLock
    from dragoman.store.errors import StoreError, StoreInUse
    from dragoman.store.losses import is_there

    path = Path(folder).expanduser()
    if not path.is_dir():
        fail(f"folder {path} does not exist; pass the data folder of a broker", USAGE)
    try:
        if not is_there(path):
            fail(f"there is no store in {path}; pass the data folder of a broker", USAGE)
        held = FolderLock(path)
    except DataFolderLocked as error:
        fail(f"{error}: stop it first", TAKEN)
    except StoreError as error:
        fail(str(error), DISK)
    except OSError as error:
        fail(f"folder {path} cannot be used: {error.strerror or error}", DISK)
    try:
        return act(path)
    except StoreInUse as error:
        fail(f"{error}: stop it first", TAKEN)
    except StoreError as error:
        fail(str(error), DISK)
    finally:
        held.close()
