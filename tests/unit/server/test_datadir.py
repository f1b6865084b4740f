"""The data folder: its lock, its epoch, and a disk that has no room for either."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dragoman.server.datadir import DataFolder, FolderLock, FolderTaken


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk on which nothing can be synced while the ballast is there, or `crowd`."""
    sync = os.fsync

    def no_room(descriptor: int) -> None:
        if (tmp_path / "ballast").exists() or (tmp_path / "crowd").exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", no_room)


def test_a_folder_that_is_only_locked_gets_no_epoch(tmp_path: Path) -> None:
    held = FolderLock(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["lock"]
    with pytest.raises(FolderTaken, match=f"in use by the broker with process id {os.getpid()}"):
        DataFolder(tmp_path)
    held.close()
    DataFolder(tmp_path).close()


@pytest.mark.usefixtures("full")
def test_the_ballast_is_given_up_for_the_epoch(tmp_path: Path) -> None:
    """A broker that was started anew on a full disk could not even serve calls."""
    (tmp_path / "ballast").touch()
    folder = DataFolder(tmp_path)
    assert folder.epoch == 0
    assert {each.name for each in tmp_path.iterdir()} == {"lock", "epoch"}
    folder.close()


@pytest.mark.usefixtures("full")
def test_a_disk_that_is_full_without_the_ballast_names_the_folder_and_leaves_nothing(tmp_path: Path) -> None:
    for name in ("ballast", "crowd"):
        (tmp_path / name).touch()
    with pytest.raises(OSError, match="No space left") as caught:
        DataFolder(tmp_path)
    assert caught.value.filename == str(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {"lock", "crowd"}
    (tmp_path / "crowd").unlink()
    DataFolder(tmp_path).close()
