"""The store's file: its tables, its format version, and the upgrade of older files."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from time import monotonic
from typing import Final

import apsw

from dragoman.store.errors import ADVICE, StoreCorrupted, StoreError, StoreInUse
from dragoman.store.file_names import NAME, log_of
from dragoman.store.sealing import FIRST, UNSEALED
from dragoman.store.statements import write_note

APPLICATION = 0x44524147  # "DRAG"
VERSION = 6
SEALED_SINCE = 3  # first version with checksums, and with its number in the table `note`
AUTHOR = "author"  # key of the release that last wrote the file
FORMAT = "format"  # key of a copy of the version: the one in the header has no checksum
COMMITS = "commits"  # key of the number of acknowledged commits and the time of the last one
OWN_NOTES = (AUTHOR, FORMAT, COMMITS, UNSEALED)

# In older releases, a log that is reused may damage the file if two connections meet. One connection was always safe.
OLDEST_SQLITE = (3, 51, 3)

# Where SQLite locks a file, and `struct flock` of Linux.
PENDING_BYTE: Final = 0x40000000
LOCK_BYTES: Final = 512
_lock: Final = Struct("@hhqqi0q")

TABLES = """
CREATE TABLE job(
    number INTEGER PRIMARY KEY, id BLOB NOT NULL, service TEXT NOT NULL, wishes TEXT NOT NULL, created REAL NOT NULL,
    key TEXT, digest BLOB, retry_of BLOB, payload BLOB NOT NULL, head_sum INTEGER, body_sum INTEGER, owner TEXT,
    extras TEXT
) STRICT;
CREATE TABLE fate(
    number INTEGER PRIMARY KEY, start_at REAL, spent INTEGER NOT NULL, deaths INTEGER NOT NULL, history TEXT,
    token BLOB, attempt INTEGER, given REAL, worker TEXT, outcome TEXT, reason TEXT, quarantined INTEGER NOT NULL,
    keep_until REAL, result BLOB, may_return INTEGER NOT NULL DEFAULT 0,
    head_sum INTEGER, told_sum INTEGER, body_sum INTEGER
) STRICT;
CREATE TABLE note(key TEXT PRIMARY KEY, value TEXT NOT NULL, sum INTEGER) STRICT, WITHOUT ROWID;
"""

# From each version to the next: the new columns. Checksums of rows before `SEALED_SINCE` follow (seal_all).
MIGRATIONS: dict[int, dict[str, tuple[str, ...]]] = {
    1: {"fate": ("may_return INTEGER NOT NULL DEFAULT 0",)},  # no worker could resume before
    2: {
        "job": ("head_sum INTEGER", "body_sum INTEGER"),
        "fate": ("head_sum INTEGER", "told_sum INTEGER", "body_sum INTEGER"),
        "note": ("sum INTEGER",),
    },
    3: {},  # attempts in the history may have their times, and `given` is the end of an ended job; the file is renamed
    4: {"job": ("owner TEXT",)},  # all jobs belonged to `local`, which is NULL: their checksums are the same
    5: {"job": ("extras TEXT",)},  # no job had extras, which is NULL: the same
}


def open_file(path: Path, vfs: str | None = None) -> apsw.Connection:
    """Open or create the file with an exclusive lock; its content is not changed. Raises StoreError if it cannot be
    used."""
    check_sqlite_version()
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
    except (OSError, apsw.Error) as error:
        raise StoreError(f"{path} cannot be opened: {error}") from error
    try:
        _prepare(connection, path)
    except BaseException as error:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # a rejected file is not changed
        connection.close()
        explained = _explained(error, path)
        if explained is None:
            raise
        raise explained from error
    return connection


def _holder(path: Path) -> str:
    """Return the process that has SQLite's lock of a file. The lock of the folder does not name it if that file was
    removed."""
    if sys.platform != "linux":
        return "another program"
    question = _lock.pack(fcntl.F_WRLCK, os.SEEK_SET, PENDING_BYTE, LOCK_BYTES, 0)
    try:
        with open(path, "rb") as file:
            kind, _, _, _, process = _lock.unpack(fcntl.fcntl(file, fcntl.F_GETLK, question))
    except OSError:
        return "another program"
    return "another program" if kind == fcntl.F_UNLCK else f"the process with id {process}"


def _explained(error: BaseException, path: Path) -> StoreError | None:
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return damaged(path, str(error))
    if isinstance(error, apsw.BusyError):
        return StoreInUse(f"{path} is in use by {_holder(path)}")
    if isinstance(error, apsw.Error):
        return StoreError(f"{path} cannot be used: {error}")
    if isinstance(error, UnicodeDecodeError):
        return damaged(path, f"invalid text: {error.reason}")
    return None


def bring_up_to_date(connection: apsw.Connection, author: str = "") -> None:
    """Create the tables of a new file, or upgrade an older one, and store the author. `seal_all` adds checksums of
    rows."""
    fresh, version = is_new(connection), connection.pragma("user_version")
    if version == VERSION and connection.execute("SELECT value FROM note WHERE key = ?", (AUTHOR,)).get == author:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if fresh:
            connection.execute(TABLES)
            connection.pragma("application_id", APPLICATION)
        elif version < VERSION:
            _migrate(connection, version)
        connection.pragma("user_version", VERSION)
        write_note(connection, FORMAT, str(VERSION))
        write_note(connection, AUTHOR, author)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _migrate(connection: apsw.Connection, version: int) -> None:
    """Upgrade the tables, in the open transaction."""
    for older in range(version, VERSION):
        for table, columns in MIGRATIONS[older].items():
            known = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            for column in columns:
                if column.split()[0] not in known:
                    connection.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
    if version < SEALED_SINCE:
        for key, value in connection.execute("SELECT key, value FROM note").fetchall():
            write_note(connection, str(key), str(value))
        write_note(connection, UNSEALED, FIRST)


def make_store(folder: Path, author: str = "") -> None:
    """Create an empty store, unless there is a file or a log already: SQLite would remove the log."""
    path = folder / NAME
    if has_bytes(path) or has_bytes(log_of(path)):
        return
    connection = open_file(path)
    try:
        bring_up_to_date(connection, author)
    except apsw.Error as error:
        raise StoreError(f"{path} cannot be created: {error}") from error
    finally:
        connection.close()


def has_bytes(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False


def check_sqlite_version() -> None:
    """Reject an SQLite that may damage the file (R106)."""
    version = apsw.sqlite_lib_version()
    if tuple(map(int, version.split(".")[:3])) < OLDEST_SQLITE:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        raise StoreError(f"SQLite {version} may damage the store; install an apsw with SQLite {wanted} or newer")


def damaged(path: Path, how: str, advice: str = ADVICE) -> StoreCorrupted:
    return StoreCorrupted(f"{path} is damaged ({how.splitlines()[-1]}): {advice}")


def _prepare(connection: apsw.Connection, path: Path) -> None:
    pragma = connection.pragma
    pragma("locking_mode", "EXCLUSIVE")  # before WAL: then the log's index is in memory, not in a file
    application, version = pragma("application_id"), pragma("user_version")
    fresh = is_new(connection)
    if not fresh:
        if application != APPLICATION and not _has_tables(connection):
            raise StoreError(f"{path} is not a store of Dragoman: move it away, or name another folder (--data)")
        if application != APPLICATION:
            raise damaged(path, f"its application id is {application:#x} instead of {APPLICATION:#x}")
        _check_version(connection, path, version)
    if fresh:
        pragma("auto_vacuum", "INCREMENTAL")
    if pragma("journal_mode", "WAL") != "wal":
        raise StoreError(f"{path} cannot be used: no write-ahead log is possible on its file system")
    pragma("synchronous", "FULL")
    pragma("wal_autocheckpoint", 0)
    pragma("cache_size", -16_384)


def is_new(connection: apsw.Connection) -> bool:
    """True if nothing has been written into it yet."""
    return not connection.execute("SELECT count(*) FROM sqlite_schema").get


def _has_tables(connection: apsw.Connection) -> bool:
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    return {"job", "fate", "note"} <= names


def noted_version(connection: apsw.Connection) -> int | None:
    """Return the version in the table `note`; None before checksums."""
    try:
        value = connection.execute("SELECT value FROM note WHERE key = ?", (FORMAT,)).get
        return int(value) if value is not None else None
    except (apsw.SQLError, ValueError, UnicodeDecodeError):
        return None


def _check_version(connection: apsw.Connection, path: Path, version: int) -> None:
    """Reject a newer version. A version that differs from the table `note` means a damaged header."""
    noted = noted_version(connection)
    if noted is not None and noted != version:
        raise damaged(path, f"its header says format {version}, its table note says {noted}")
    if version > VERSION:
        raise _too_new(connection, path, version)
    if version < 1 or (noted is None and version >= SEALED_SINCE):
        raise damaged(path, f"its header says format {version}, its table note has none")


def _too_new(connection: apsw.Connection, path: Path, version: int) -> StoreError:
    try:
        author = connection.execute("SELECT value FROM note WHERE key = ?", (AUTHOR,)).get
    except (apsw.SQLError, UnicodeDecodeError):
        author = None
    writer = f"Dragoman {author}" if author else "a newer Dragoman"
    return StoreError(
        f"{path} was written by {writer} (format {version}; this one reads up to {VERSION}): "
        "use that release, or name another folder (--data)"
    )


def check_file(connection: apsw.Connection, should_stop: Callable[[], bool]) -> str | None:
    """Return an error message about the file, or "" if it is valid; None if `should_stop` ended the check (R109)."""
    connection.set_progress_handler(should_stop, 10_000)
    try:
        found = connection.execute("PRAGMA quick_check(1)").get
    except apsw.InterruptError:
        return None
    finally:
        connection.set_progress_handler(None)
    return "" if found == "ok" else str(found)


def within(seconds: float) -> Callable[[], bool]:
    """Return a function that is true when this time has passed."""
    until = monotonic() + seconds
    return lambda: monotonic() > until
