"""A disk for SQLite that can be full, can fail, and can lose power at any instant.

Everything is written to real files. In addition the disk records what a power cut would leave: synced data is certainly
there; any part of later data may be missing or incomplete.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import apsw

Write = tuple[int, bytes | None]  # where, and what; None: cut off there


class Platter:
    """The content of one file on the disk."""

    def __init__(self) -> None:
        self.safe = bytearray()
        self.unsafe: list[Write] = []

    def sync(self) -> None:
        for each in self.unsafe:
            put(self.safe, *each)
        self.unsafe.clear()

    def after_power_cut(self, random: Random) -> bytes:
        left = bytearray(self.safe)
        for where, what in self.unsafe:
            fate = random.random()
            if fate < 0.4:
                continue
            if what is not None and fate < 0.6:
                what = what[: random.randrange(len(what) + 1)]
            put(left, where, what)
        return bytes(left)


def put(file: bytearray, where: int, what: bytes | None) -> None:
    if what is None:
        del file[where:]
        return
    if len(file) < where:
        file.extend(bytes(where - len(file)))
    file[where : where + len(what)] = what


class Disk(apsw.VFS):
    """A disk on which files can be opened by its `name`, as long as it exists."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.platters: dict[str, Platter] = {}
        self.capacity: int | None = None  # bytes, for all that lies in the folder of its files
        self.before_write: Callable[[], None] = lambda: None
        self.before_sync: Callable[[], None] = lambda: None
        super().__init__(name, "", maxpathname=0)

    def xOpen(self, name: Any, flags: list[int]) -> DiskFile:
        return DiskFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.platters.pop(Path(filename).name, None)
        super().xDelete(filename, syncdir)

    def room(self, folder: Path) -> int:
        assert self.capacity is not None
        return self.capacity - sum(path.stat().st_size for path in folder.iterdir())

    def after_power_cut(self, random: Random) -> dict[str, bytes]:
        return {name: platter.after_power_cut(random) for name, platter in self.platters.items()}


class DiskFile(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._folder = Path(path).parent if path else None
        self._platter = disk.platters.setdefault(Path(path).name if path else "", Platter())
        super().__init__("", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:
        self._disk.before_write()
        if self._disk.capacity is not None and self._folder is not None:
            growth = offset + len(data) - self.xFileSize()
            if growth > 0 and growth > self._disk.room(self._folder):
                raise apsw.FullError()
        self._platter.unsafe.append((offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:
        self._platter.unsafe.append((size, None))
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        self._disk.before_sync()
        super().xSync(flags)
        self._platter.sync()
