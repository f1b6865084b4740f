"""Reads an access folder: one file a principal, all of them or none."""

from __future__ import annotations

import os
from pathlib import Path

from dragoman.access.principal_file import MAX_FILE_BYTES, SUFFIX, PrincipalEntry, read_principal
from dragoman.access.private_files import check_owner, check_unwritable, checked_folder, opened_file
from dragoman.access.problems import AccessError, Problem, access_error
from dragoman.access.table import AccessTable

MAX_FILES = 1_000


def principal_path(folder: Path, name: str) -> Path:
    return folder / f"{name}{SUFFIX}"


def load_folder(folder: Path, uid: int) -> AccessTable:
    """Read all principals. `uid` is the user that, besides root, may own and change the files. Raises AccessError with
    all problems."""
    entries: list[PrincipalEntry] = []
    problems: list[Problem] = []
    try:
        with checked_folder(folder, uid) as handle:
            for name in _names(folder, handle):
                try:
                    entries.append(load_file(folder, name, uid, handle))
                except AccessError as error:
                    problems += error.problems
    except OSError as error:
        raise access_error(folder, f"cannot be read: {error.strerror or error}; it must be a folder") from None
    if problems:
        raise AccessError(problems)
    return AccessTable(entries)


def load_file(folder: Path, name: str, uid: int, handle: int) -> PrincipalEntry:
    """Read one principal from a folder, which is open as `handle`. Raises AccessError."""
    path = principal_path(folder, name)
    return read_principal(name, read_content(path, uid, handle), str(path))


def read_content(path: Path, uid: int, folder: int) -> bytes:
    """Read a file that only `uid` and root may change. Raises AccessError.

    A symbolic link may lead to another place within the folder, as Kubernetes makes them, and not out of it: users who
    may not change the folder could change the file there.
    """
    try:
        with opened_file(path, folder) as (file, found):
            if Path(os.path.realpath(path.parent)) not in Path(os.path.realpath(path)).parents:
                raise access_error(path, "is a symbolic link to a place outside of the folder; copy the file here")
            check_owner(path, found, uid)
            check_unwritable(path, found)
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise access_error(path, f"cannot be read: {error.strerror or error}; make it readable, or remove it") from None


def _names(folder: Path, handle: int) -> list[str]:
    """Names of the principals. Hidden files and those that do not end in .toml are no principals."""
    found = [each for each in os.listdir(handle) if each.lower().endswith(SUFFIX) and not each.startswith(".")]
    if len(found) > MAX_FILES:
        raise access_error(folder, f"has {len(found)} principals; at most {MAX_FILES} are allowed: remove unused ones")
    for each in sorted(found):
        if not each.endswith(SUFFIX):
            raise access_error(folder / each, f"must end in {SUFFIX}, in small letters; rename it")
    return sorted(each.removesuffix(SUFFIX) for each in found)
