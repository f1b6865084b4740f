"""Saves files that were removed from the folder of a running broker: the kernel keeps them while it runs (R130)."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from dragoman.store.counter import sync_folder
from dragoman.store.errors import StoreError
from dragoman.store.file_names import NAME, OLDER_NAME, log_of
from dragoman.store.losses import EPOCH
from dragoman.store.schema import has_bytes

OPEN_FILES = Path("/proc")
GONE = " (deleted)"  # suffix of the name of a removed file in /proc
TRIES = 50
QUIET = 0.1  # seconds without a write, before and during the copy


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """Paths of the files that a process has open."""

    store: Path
    log: Path | None
    epoch: Path | None


def find_open_files(pid: int, proc: Path = OPEN_FILES) -> OpenFiles:
    """Return the paths through which the open files of this process can be read. Raises StoreError."""
    found: dict[str, Path] = {}
    try:
        for each in (proc / str(pid) / "fd").iterdir():
            try:
                name = Path(os.readlink(each).removesuffix(GONE)).name
            except FileNotFoundError:
                continue  # closed meanwhile
            found.setdefault(name, each)
    except FileNotFoundError:
        raise StoreError(f"there is no process {pid} on this machine: name the process id of the broker") from None
    except OSError as error:
        advice = "run this as the user that the broker runs as"
        raise StoreError(f"the open files of process {pid} cannot be read ({error.strerror}): {advice}") from error
    name = NAME if NAME in found else OLDER_NAME
    if name not in found:
        raise StoreError(f"process {pid} has no {NAME} open: give the process id of the broker")
    return OpenFiles(found[name], found.get(f"{name}-wal"), found.get(EPOCH))


def rescue(pid: int, folder: Path, proc: Path = OPEN_FILES) -> None:
    """Copy the open files of the process into a folder in which a broker can be started. Raises StoreError."""
    files = find_open_files(pid, proc)
    target = folder / NAME
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if has_bytes(target) or has_bytes(log_of(target)):
            raise StoreError(f"{folder} already has a store: name an empty folder")
        _copy_quietly(files, target)
        if files.epoch is not None:
            _copy(files.epoch, folder / EPOCH)
        sync_folder(folder)
    except OSError as error:
        raise StoreError(f"the files cannot be saved in {folder}: {error}") from error


def _copy_quietly(files: OpenFiles, target: Path) -> None:
    """Copy both files at one moment: neither may be written to meanwhile."""
    pairs = [(files.store, target)]
    if files.log is not None:
        pairs.append((files.log, log_of(target)))
    for _ in range(TRIES):
        before = _stamps(pairs)
        if all(time.time() - changed / 1e9 >= QUIET for _, changed in before):
            for source, copy in pairs:
                _copy(source, copy)
            if _stamps(pairs) == before:
                return
        time.sleep(QUIET)
    for _, copy in pairs:
        copy.unlink(missing_ok=True)
    raise StoreError("the broker still writes to its files; if these are in their folder, stop it and copy the folder")


def _stamps(pairs: list[tuple[Path, Path]]) -> list[tuple[int, int]]:
    return [(found.st_size, found.st_mtime_ns) for found in (source.stat() for source, _ in pairs)]


def _copy(source: Path, copy: Path) -> None:
    with open(copy, "wb", opener=_private) as file, open(source, "rb") as original:
        shutil.copyfileobj(original, file, 1 << 20)
        file.flush()
        os.fsync(file.fileno())


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
