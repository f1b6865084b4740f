"""Disks of NATS servers that lose power: a file system of its own for each server, in a file.

A server writes through the cache of its file system. The file has what was synced, and what the kernel has written back
by itself: as a disk whose power is cut. So a cut is a copy of the file while the file system is mounted;
the copy is mounted afterwards, and its journal replayed. Loop devices and mounts need root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from programs import until

SIZE = 8 << 30  # bytes; the file is sparse


class NoDisks(Exception):
    """File systems cannot be made here. The message says why."""


class Disk:
    """One file system, mounted at `place`."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.place = folder / name
        self.place.mkdir()
        self._image = folder / f"{name}.image"
        self._cut = folder / f"{name}.cut"
        with self._image.open("wb") as file:
            file.truncate(SIZE)
        _run("mkfs.ext4", "-q", self._image)
        self._mount()

    def cut(self) -> None:
        """Keep what is on the disk at this moment."""
        _run("cp", "--sparse=always", self._image, self._cut)

    def restore(self) -> None:
        """Continue with what was on the disk at the cut. Nothing may use it."""
        self.close()
        os.replace(self._cut, self._image)
        self._mount()

    def close(self) -> None:
        until(self._has_unmounted, f"{self.place} is unmounted")

    def _mount(self) -> None:
        _run("mount", "-o", "loop", self._image, self.place)

    def _has_unmounted(self) -> bool:
        if not os.path.ismount(self.place):
            return True
        return subprocess.run(["umount", self.place], capture_output=True).returncode == 0


def check_disks() -> None:
    """Raise NoDisks if this process may not make file systems."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        raise NoDisks("power cuts need root, mkfs.ext4 and loop devices: file systems in files are mounted")


def _run(*words: object) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        raise NoDisks(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
