"""Errors of the store's file, and which of them are temporary."""

from __future__ import annotations

import errno

import apsw

ADVICE = "run `dragoman store recover` on its folder"
BACKUP_ADVICE = f"{ADVICE}, or `dragoman store accept` if you have restored a backup"

# System errors about missing space. SQLite has an error of its own only for the first.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


FULL = "the disk is full"


class StoreError(Exception):
    """The store cannot be used. The message says what to do."""


class StoreInUse(StoreError):
    """Another process has the store's file open."""


class StoreCorrupted(StoreError):
    """The store's file is damaged."""


class InvalidRow(Exception):
    """A row of the store is invalid."""


def temporary_error(error: apsw.Error, system_errno: int) -> str | None:
    """Return the reason why nothing can be written now, if it may end by itself (R101); None: the store failed (R104).

    A failed sync is never temporary: the data that the kernel had to write may be lost, whatever the error is.
    """
    if isinstance(error, apsw.FullError):
        return FULL
    if isinstance(error, apsw.ReadOnlyError):
        return "the store's file is read-only"
    if isinstance(error, apsw.IOError) and getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE:
        if system_errno in NO_ROOM:
            return FULL
        if system_errno == errno.EROFS:
            return "the store's file is read-only"
    return None


def describe(error: BaseException) -> str:
    """Return a message for the operator."""
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | InvalidRow):
        return f"the store is damaged ({error}): {ADVICE}"
    return f"the store failed ({type(error).__name__}: {error})"
