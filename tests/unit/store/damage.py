"""Damaged stores."""

from __future__ import annotations

from pathlib import Path

import apsw

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


def reseal(folder: Path) -> None:
    """Give every row the checksums of what is in it now."""
    file = raw(folder)
    write_note(file, UNSEALED, FIRST)
    seal_all(file, lambda done, total: None)
    file.close()
