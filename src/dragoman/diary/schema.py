"""The diary's file: its tables, its format's version, and how an older one is brought up to it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import apsw

from dragoman.diary.trouble import ADVICE, Damaged, DiaryError

NAME = "diary.db"
APPLICATION = 0x44524147  # "DRAG"
VERSION = 2
AUTHOR = "author"  # under this note: which release wrote the file last

# Before it, a log that is reused may damage the file if two connections meet; one of ours alone has been safe always.
OLDEST_SQLITE = (3, 51, 3)

TABLES = """
CREATE TABLE job(
    number INTEGER PRIMARY KEY, id BLOB NOT NULL, service TEXT NOT NULL, wishes TEXT NOT NULL, created REAL NOT NULL,
    key TEXT, digest BLOB, retry_of BLOB, payload BLOB NOT NULL
) STRICT;
CREATE TABLE fate(
    number INTEGER PRIMARY KEY, start_at REAL, spent INTEGER NOT NULL, deaths INTEGER NOT NULL, history TEXT,
    token BLOB, attempt INTEGER, given REAL, worker TEXT, outcome TEXT, reason TEXT, quarantined INTEGER NOT NULL,
    keep_until REAL, result BLOB, may_return INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE note(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
"""

# From each version to the next.
MIGRATIONS = {
    1: "ALTER TABLE fate ADD COLUMN may_return INTEGER NOT NULL DEFAULT 0;",  # nobody could come back before
}


def open_file(path: Path, vfs: str | None = None) -> apsw.Connection:
    """Open the file, or make it, for us alone; nothing in it is changed. Raises DiaryError if it is not for us."""
    refuse_old_sqlite()
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
    except (OSError, apsw.Error) as error:
        raise DiaryError(f"{path} cannot be opened: {error}") from error
    try:
        _prepare(connection, path)
    except (apsw.CorruptError, apsw.NotADBError) as error:
        connection.close()
        raise damaged(path, str(error)) from error
    except apsw.BusyError as error:
        connection.close()
        raise DiaryError(f"{path} is in use by another program") from error
    except apsw.Error as error:
        connection.close()
        raise DiaryError(f"{path} cannot be used: {error}") from error
    except DiaryError:
        connection.close()
        raise
    return connection


def bring_up_to_date(connection: apsw.Connection, author: str = "") -> None:
    """Make the tables of a new file, or change an older one's; and sign it."""
    fresh, version = is_new(connection), connection.pragma("user_version")
    if version == VERSION and connection.execute("SELECT value FROM note WHERE key = ?", (AUTHOR,)).get == author:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if fresh:
            connection.execute(TABLES)
            connection.pragma("application_id", APPLICATION)
        else:
            for older in range(version, VERSION):
                connection.execute(MIGRATIONS[older])
        connection.pragma("user_version", VERSION)
        connection.execute("INSERT OR REPLACE INTO note VALUES (?, ?)", (AUTHOR, author))
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def refuse_old_sqlite() -> None:
    """R106."""
    version = apsw.sqlite_lib_version()
    if tuple(map(int, version.split(".")[:3])) < OLDEST_SQLITE:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        raise DiaryError(f"SQLite {version} may damage the diary; install an apsw that brings {wanted} or newer")


def damaged(path: Path, how: str) -> Damaged:
    return Damaged(f"{path} is damaged ({how.splitlines()[-1]}): {ADVICE}")


def _prepare(connection: apsw.Connection, path: Path) -> None:
    pragma = connection.pragma
    pragma("locking_mode", "EXCLUSIVE")  # before WAL: then the log's index is in our memory, and no file beside it
    application, version = pragma("application_id"), pragma("user_version")
    fresh = is_new(connection)
    if not fresh and application != APPLICATION:
        raise DiaryError(f"{path} is no diary of Dragoman: move it away, or give another folder (--data)")
    if version > VERSION:
        raise _too_new(connection, path, version)
    if fresh:
        pragma("auto_vacuum", "INCREMENTAL")
    if pragma("journal_mode", "WAL") != "wal":
        raise DiaryError(f"{path} cannot be used: no write-ahead log is possible on its file system")
    pragma("synchronous", "FULL")
    pragma("wal_autocheckpoint", 0)
    pragma("cache_size", -16_384)


def is_new(connection: apsw.Connection) -> bool:
    """Whether nothing has been written into it yet."""
    return not connection.execute("SELECT count(*) FROM sqlite_schema").get


def _too_new(connection: apsw.Connection, path: Path, version: int) -> DiaryError:
    try:
        author = connection.execute("SELECT value FROM note WHERE key = ?", (AUTHOR,)).get
    except apsw.SQLError:
        author = None
    who = f"Dragoman {author}" if author else "a newer Dragoman"
    return DiaryError(
        f"{path} was written by {who} (format {version}; this one reads up to {VERSION}): "
        "use that release, or give another folder (--data)"
    )


def check_file(connection: apsw.Connection, should_stop: Callable[[], bool]) -> str | None:
    """What is wrong with the file, or "" if nothing is; None if it was told to stop before it knew (R109)."""
    connection.set_progress_handler(should_stop, 10_000)
    try:
        found = connection.execute("PRAGMA quick_check(1)").get
    except apsw.InterruptError:
        return None
    finally:
        connection.set_progress_handler(None)
    return "" if found == "ok" else str(found)


def within(seconds: float) -> Callable[[], bool]:
    """Says so when this time is over."""
    until = monotonic() + seconds
    return lambda: monotonic() > until
