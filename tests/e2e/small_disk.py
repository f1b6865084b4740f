"""A small disk for one test: a tmpfs in a mount namespace that ends with the process that holds it."""

from __future__ import annotations

import os
from pathlib import Path

from survivor import Survivor

from programs import DRAGOMAN, Program, Programs

IS_ROOT = os.geteuid() == 0
NAMESPACES = ("-m",) if IS_ROOT else ("-m", "-r")
CHUNK = bytes(1 << 16)
HOLD = 'mount -t tmpfs -o size="$1",mode=700 none "$2" && echo mounted && exec sleep 600'


class SmallDisk:
    """A disk. `place` is its path inside the namespace, `seen` its path outside."""

    def __init__(self, programs: Programs, size: str) -> None:
        self.place = programs.folder / "disk"
        self.place.mkdir()
        self._programs = programs
        self._holder = programs.start("unshare", *NAMESPACES, "sh", "-c", HOLD, "sh", size, self.place)
        self._holder.prints("mounted")
        self.seen = Path(f"/proc/{self._holder.pid}/root{self.place}")

    def inside(self, *words: object) -> Program:
        """Run a program inside the namespace."""
        users = () if IS_ROOT else ("-U", "--preserve-credentials")
        return self._programs.start("nsenter", "-t", self._holder.pid, "-m", *users, "--", *words)

    def fill(self) -> None:
        """Fill the disk to the last byte."""
        filler = os.open(self.seen / "filler", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        size = len(CHUNK)
        while size:
            try:
                os.write(filler, CHUNK[:size])
            except OSError:
                size //= 2
        os.close(filler)

    def clear(self) -> None:
        (self.seen / "filler").unlink()

    def remount(self, how: str) -> None:
        """Remount with `ro` or `rw`, while no file is open there."""
        done = self.inside("mount", "-o", f"remount,{how}", self.place)
        assert done.ends() == 0, done.err


class OnSmallDisk(Survivor):
    """A broker whose data folder is on the small disk."""

    def __init__(self, programs: Programs, disk: SmallDisk, *flags: object) -> None:
        self._disk = disk
        super().__init__(programs, *flags, data=disk.place / "data")

    def launch(self, *words: object) -> Program:
        return self._disk.inside(DRAGOMAN, *words)
