"""Changes in an access folder: each is one file, written at once, and leaves a table that can be read.

Commands that run at the same time wait for each other. Files that were written by hand keep their comments and order.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dragoman.access.editing import NotEditable, with_item, without_item
from dragoman.access.folder import MAX_FILES, load_file, load_folder, principal_path, read_content
from dragoman.access.identities import Identity, read_identity
from dragoman.access.principal_file import PrincipalEntry, check_principal_name, line_of, read_principal
from dragoman.access.private_files import checked_folder, remove_file, write_file
from dragoman.access.problems import AccessError, Problem, access_error
from dragoman.core.rights import Right

Edit = Callable[[str, str, str | int], str]


def allow(
    folder: Path,
    uid: int,
    name: str,
    identities: Sequence[Identity],
    patterns: Mapping[Right, Sequence[str]],
    head: str,
) -> PrincipalEntry:
    """Add identities and rights to a principal. A new one gets a file that begins with `head`. Raises AccessError."""
    path = principal_path(folder, name)
    with checked_folder(folder, uid, locked=True) as handle:
        table = load_folder(folder, uid)
        former = table.entries.get(name)
        if former is None and len(table.entries) >= MAX_FILES:
            raise access_error(folder, f"has {MAX_FILES} principals, the maximum; remove unused ones")
        before = read_content(path, uid, handle).decode() if former is not None else ""
        text = before or head
        known = former.identities if former is not None else ()
        for identity in identities:
            if identity not in known:  # it may be there in another form
                text = _edited(path, text, identity.kind, with_item, identity.in_file)
        for right, services in patterns.items():
            for each in services:
                text = _edited(path, text, right, with_item, each)
        entry = read_principal(name, text.encode(), str(path))
        table.replaced(entry)
        if text != before:
            write_file(path, text.encode())
    return entry


def revoke(folder: Path, uid: int, name: str, identity: Identity) -> PrincipalEntry:
    """Remove an identity from a principal, which stays, also without any. Raises AccessError.

    Other files are not read: a problem in one of them must not prevent a revocation.
    """
    path = principal_path(folder, name)
    with checked_folder(folder, uid, locked=True) as handle:
        load_file(folder, name, uid, handle)
        text = read_content(path, uid, handle).decode()
        for item in tomllib.loads(text).get(identity.kind, []):
            if read_identity(identity.kind, item) == identity:
                text = _edited(path, text, identity.kind, without_item, item)
        entry = read_principal(name, text.encode(), str(path))
        write_file(path, text.encode())
    return entry


def remove(folder: Path, uid: int, name: str) -> Path:
    """Delete the file of a principal. Raises AccessError if there is none."""
    path = principal_path(folder, name)
    try:
        check_principal_name(name)
        with checked_folder(folder, uid, locked=True):
            remove_file(path)
    except ValueError as error:
        raise access_error(path, str(error)) from None
    except FileNotFoundError:
        raise access_error(path, f"does not exist: there is no principal {name!r}") from None
    return path


def _edited(path: Path, text: str, key: str, edit: Edit, item: str | int) -> str:
    try:
        return edit(text, key, item)
    except NotEditable as error:
        raise AccessError([Problem(str(path), line_of(text, key), str(error))]) from None
