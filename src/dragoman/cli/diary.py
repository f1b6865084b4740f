"""`dragoman diary`: look after the file that background jobs are kept in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from dragoman.cli.exits import DISK, FAILED, TAKEN, USAGE, give_up

T = TypeVar("T")


@click.group()
def diary() -> None:
    """Look after a diary while no broker uses it."""


@diary.command()
@click.argument("folder", metavar="DIR")
def check(folder: str) -> None:
    """Say whether the diary in this folder is in order."""
    from dragoman.diary import recovery

    found = _with_folder(folder, recovery.check)
    if found:
        give_up(f"the diary in {folder} is damaged: {found}\nTo read what can be read: dragoman diary recover", FAILED)
    click.echo("in order")


@diary.command()
@click.argument("folder", metavar="DIR")
def recover(folder: str) -> None:
    """Make a new diary of what can be read of a damaged one, which is kept beside it."""
    from dragoman.diary import recovery

    found = _with_folder(folder, recovery.recover)
    click.echo(f"recovered: {found.jobs} jobs, {found.fates} of them with what happened to them; {found.notes} notes")
    if found.unreadable:
        click.echo(f"passed over: {found.unreadable} places that cannot be read")
    click.echo(f"the damaged file is {found.damaged}")


def _with_folder(folder: str, act: Callable[[Path], T]) -> T:
    """Do something to a diary that nobody else may touch meanwhile."""
    from dragoman.diary.trouble import DiaryError
    from dragoman.server.datadir import DataFolder, FolderTaken

    path = Path(folder).expanduser()
    if not path.is_dir():
        give_up(f"there is no folder {path}", USAGE)
    try:
        held = DataFolder(path)
    except FolderTaken as error:
        give_up(f"{error}: stop it first", TAKEN)
    try:
        return act(path)
    except DiaryError as error:
        give_up(str(error), DISK)
    finally:
        held.close()
