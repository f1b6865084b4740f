"""Preallocated space behind the end of the log: zeros, which SQLite ignores."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from dragoman.store.limits import StoreLimits
from dragoman.store.log import Log, is_blank, size_of_log
from dragoman.store.log_room import STEP, LogRoom

from .disk import Disk
from .world import Setup, until

PAGE = 4_096
BUSY = StoreLimits(ballast=0, idle=3_600.0, retry=3_600.0)  # nothing is merged by itself


def size(folder: Path) -> int:
    return (folder / "store.db-wal").stat().st_size


def used(folder: Path) -> int:
    with Log(folder / "store.db-wal") as log:
        return size_of_log(sum(log.frame(index).is_ours for index in range(log.count)), PAGE)


def test_commits_do_not_make_the_log_longer(tmp_path: Path) -> None:
    setup = Setup(tmp_path, BUSY)
    setup.enqueue()
    setup.settle()
    until(lambda: size(tmp_path) >= STEP)
    length, before = size(tmp_path), used(tmp_path)
    for _ in range(20):
        setup.enqueue()
        setup.settle()
    assert used(tmp_path) > before
    assert size(tmp_path) == length
    setup.close()


def test_next_room_is_written_before_the_log_needs_it(tmp_path: Path) -> None:
    setup = Setup(tmp_path, BUSY)
    for _ in range(12):
        setup.enqueue(bytes(STEP // 8))
        setup.settle()
        until(lambda: size(tmp_path) >= STEP)
    end = setup.store._writer._log_pages
    until(lambda: size(tmp_path) >= size_of_log(end, PAGE) + STEP // 4)
    assert size_of_log(end, PAGE) > STEP
    setup.close()


def test_room_ends_where_the_log_is_merged(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"")
    room = LogRoom(log, None, PAGE, 3 * STEP)
    for frames in range(1, 8 * STEP // PAGE):
        if log.stat().st_size < size_of_log(frames, PAGE):
            os.truncate(log, size_of_log(frames, PAGE))  # as SQLite does
        room.keep_ahead(frames)
    assert log.stat().st_size == size_of_log(8 * STEP // PAGE - 1, PAGE)


def test_log_that_was_cut_stays_so(tmp_path: Path) -> None:
    """Or it would not be noticed (R130)."""
    log = tmp_path / "log"
    log.write_bytes(b"")
    room = LogRoom(log, None, PAGE, 3 * STEP)
    room.keep_ahead(2)
    assert log.stat().st_size == 0


def test_disk_without_room_for_zeros_gets_none(tmp_path: Path) -> None:
    disk = Disk("little room")
    try:
        setup = Setup(tmp_path, BUSY, vfs=disk.name)
        disk.capacity = sum(each.stat().st_size for each in tmp_path.iterdir()) + 8 * PAGE
        setup.enqueue()
        setup.settle()
        setup.close()
    finally:
        disk.unregister()
    assert setup.store.problem is None
    assert len(setup.accepted()) == 1


def test_room_is_written_by_the_file_system_layer_of_the_store(tmp_path: Path) -> None:
    """Or tests of disks that fail would not see it."""
    disk = Disk("one layer")
    try:
        setup = Setup(tmp_path, BUSY, vfs=disk.name)
        setup.enqueue()
        setup.settle()
        until(lambda: size(tmp_path) >= STEP)
        setup.enqueue()
        setup.settle()
        assert len(disk.platters["store.db-wal"].safe) == size(tmp_path)
        setup.close()
    finally:
        disk.unregister()


def test_log_goes_on_in_the_room_of_a_killed_broker(tmp_path: Path) -> None:
    folder = tmp_path / "0"
    folder.mkdir()
    ids = []
    for run in range(1, 4):
        setup = Setup(folder, BUSY, seed=str(run))
        setup.load()
        assert list(setup.broker.jobs) == ids
        for _ in range(5):
            ids.append(setup.enqueue().id)
            setup.settle()
        until(lambda folder=folder: size(folder) >= STEP)
        folder = Path(shutil.copytree(folder, tmp_path / str(run)))
        setup.close()
    assert size(folder) < 2 * STEP


def test_log_of_zeros_is_blank(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert is_blank(log)
    log.write_bytes(bytes(3 * STEP))
    assert is_blank(log)
    log.write_bytes(bytes(3 * STEP) + b"\1")
    assert not is_blank(log)
