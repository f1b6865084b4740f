"""What can go wrong with the diary's file, and which of it passes."""

from __future__ import annotations

import errno

import apsw

ADVICE = "run `dragoman store recover` on its folder"
BACKUP_ADVICE = f"{ADVICE}, or `dragoman store accept` if you have restored a backup"

# What the system says when there is no room or no leave to write. SQLite has a word of its own for the first only.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


FULL = "the disk is full"


class StoreError(Exception):
    """The diary cannot be used; the message says what to do."""


class StoreCorrupted(StoreError):
    """Its file is not as we left it."""


class InvalidRow(Exception):
    """A row of the diary that makes no sense."""


def temporary_error(error: apsw.Error, system_errno: int) -> str | None:
    """Why nothing can be written at the moment, if that may change without us (R101); None: it is broken (R104).

    A sync that failed is never in doubt: what the kernel had to write may be gone, whatever the reason it gives.
    """
    if isinstance(error, apsw.FullError):
        return FULL
    if isinstance(error, apsw.ReadOnlyError):
        return "its file cannot be written to"
    if isinstance(error, apsw.IOError) and getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE:
        if system_errno in NO_ROOM:
            return FULL
        if system_errno == errno.EROFS:
            return "its file cannot be written to"
    return None


def describe(error: BaseException) -> str:
    """For whoever must look at it."""
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | InvalidRow):
        return f"the diary is damaged ({error}): {ADVICE}"
    return f"the diary failed ({type(error).__name__}: {error})"
