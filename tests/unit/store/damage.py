"""Damaged stores."""

from __future__ import annotations

from pathlib import Path

import apsw

from dragoman.store.checksums import JOB_SUMS, STATUS_SUMS
from dragoman.store.sealing import FIRST, UNSEALED, seal_all
from dragoman.store.statements import write_note

from .world import Setup


def raw(folder: Path) -> apsw.Connection:
    """Open the file while no store has it open."""
    return apsw.Connection(str(folder / "store.db"))


def filled(folder: Path, jobs: int = 300, size: int = 700) -> list[bytes]:
    """Create and close a store with this many jobs. Returns their ids."""
    setup = Setup(folder)
    ids = [setup.enqueue(b"%d" % number * size).id for number in range(jobs)]
    setup.runner.store_access.note("pause/s", "ann")
    setup.settle()
    setup.close()
    return list(ids)


def damage(folder: Path, page: int) -> None:
    with open(folder / "store.db", "r+b") as file:
        file.seek(page * 4096)
        file.write(b"\xff" * 4096)


def make_older(folder: Path, version: int) -> None:
    """Turn a store whose jobs all belong to `local` and have no extras into one of an older format, 1 to 5."""
    file = raw(folder)
    file.execute("ALTER TABLE job DROP COLUMN extras")
    if version < 5:
        file.execute("ALTER TABLE job DROP COLUMN owner")
    if version < 3:
        for table, sums in (("job", JOB_SUMS), ("fate", STATUS_SUMS), ("note", ("sum",))):
            for column in sums:
                file.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        file.execute("DELETE FROM note WHERE key IN ('format', 'commits')")
    else:
        write_note(file, "format", str(version))
    if version < 2:
        file.execute("ALTER TABLE fate DROP COLUMN may_return")
    file.pragma("user_version", version)
    file.close()
    (folder / "commits").unlink()


def reseal(folder: Path) -> None:
    """Give every row the checksums of what is in it now."""
    file = raw(folder)
    write_note(file, UNSEALED, FIRST)
    seal_all(file, lambda done, total: None)
    file.close()
