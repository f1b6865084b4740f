"""The names of the store's files, and the rename of files that an earlier release wrote.

Up to format 3 the file was called `diary.db`. A store is the file and its log, and one without the other is damaged, so
the rename keeps the two together at every moment: the log gets its new name as a second one, the file is renamed in one
step, and the log loses its old name. A start that was interrupted in between continues where the last one stopped.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from dragoman.store.counter import sync_folder
from dragoman.store.errors import StoreError
from dragoman.store.log import is_blank

NAME: Final = "store.db"
OLDER_NAME: Final = "diary.db"


def log_of(path: Path) -> Path:
    return Path(f"{path}-wal")


def name_in(folder: Path) -> str:
    """The name of the store in this folder: the older one if only that is there."""
    older = folder / OLDER_NAME
    return OLDER_NAME if not (folder / NAME).exists() and (older.exists() or log_of(older).exists()) else NAME


def adopt_older(folder: Path) -> None:
    """Give the files of an earlier release their present names. Raises StoreError."""
    path, older = folder / NAME, folder / OLDER_NAME
    try:
        if older.exists():
            _refuse_mixture(path, older)
            _add_name(log_of(older), log_of(path))
            sync_folder(folder)
            os.rename(older, path)
            sync_folder(folder)
        if not log_of(older).exists():
            return
        if not path.exists():  # the file was lost: its log is found under the present name
            os.rename(log_of(older), log_of(path))
        elif _is_same(log_of(older), log_of(path)) or is_blank(log_of(older)):
            log_of(older).unlink()
        else:
            raise _mixture(folder, path, log_of(older))
        sync_folder(folder)
    except OSError as error:
        raise StoreError(f"{older} cannot be renamed to {NAME}: {error.strerror or error}") from error


def _refuse_mixture(path: Path, older: Path) -> None:
    """Reject files of two stores: a log that is read with another file damages it."""
    if path.exists():
        raise _mixture(path.parent, older, path)
    if not is_blank(log_of(path)) and not _is_same(log_of(older), log_of(path)):
        raise _mixture(path.parent, older, log_of(path))


def _mixture(folder: Path, one: Path, other: Path) -> StoreError:
    advice = (
        f"a file and its log belong together: {OLDER_NAME} and {OLDER_NAME}-wal by their older names, {NAME} and "
        f"{NAME}-wal by their present ones. If an earlier release made {OLDER_NAME} after {NAME} was there, it has "
        "only the jobs that were submitted to that release: move the store that you need less away, with its log. If "
        "files were renamed by hand, give file and log the same name again"
    )
    return StoreError(f"{folder} has both {one.name} and {other.name}: {advice}")


def _add_name(log: Path, fresh: Path) -> None:
    """Give the log a second name."""
    if _is_same(log, fresh):
        return
    fresh.unlink(missing_ok=True)  # it is blank
    if not log.exists():
        return
    try:
        os.link(log, fresh)
    except OSError:  # a file system without hard links
        copy = Path(f"{fresh}.new")
        shutil.copyfile(log, copy)
        with open(copy, "rb") as file:
            os.fsync(file.fileno())
        os.rename(copy, fresh)


def _is_same(log: Path, fresh: Path) -> bool:
    """True if both exist with the same content: two names of one log, or a log and its copy."""
    if not log.exists() or not fresh.exists():
        return False
    return log.samefile(fresh) or log.read_bytes() == fresh.read_bytes()
