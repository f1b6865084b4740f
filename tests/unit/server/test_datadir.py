"""The data folder: its lock, its epoch, and a full disk."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from dragoman.server.datadir import DataFolder, DataFolderLocked, FolderLock


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk on which nothing can be synced while the ballast file exists, or `crowd`."""
    sync = os.fsync

    def no_room(descriptor: int) -> None:
        if (tmp_path / "ballast").exists() or (tmp_path / "crowd").exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", no_room)


def test_a_folder_that_is_only_locked_gets_no_epoch(tmp_path: Path) -> None:
    held = FolderLock(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["lock"]
    with pytest.raises(DataFolderLocked, match=f"in use by the broker with process id {os.getpid()}"):
        DataFolder(tmp_path)
    held.close()
    DataFolder(tmp_path).close()


@pytest.mark.usefixtures("full")
def test_the_ballast_is_given_up_for_the_epoch(tmp_path: Path) -> None:
    """A broker that was restarted on a full disk could not even serve calls."""
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


# -------------------------------------------------------------------- who else may write there


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702, 0o757])
def test_a_folder_where_everybody_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    """Any user could have replaced the jobs in it."""
    path = tmp_path / "my data"
    path.mkdir()
    path.chmod(mode)
    with pytest.raises(PermissionError, match=f"all users may write there: run chmod o-w '{path}'") as caught:
        DataFolder(path)
    assert caught.value.filename == str(path)
    assert list(path.iterdir()) == []


def test_a_folder_where_another_group_may_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o770)
    DataFolder(tmp_path).close()  # the process's own group: Kubernetes provides volumes like that
    group = os.getegid()
    monkeypatch.setattr(os, "getegid", lambda: group + 1)
    with pytest.raises(PermissionError, match=f"group {group} may write there, not the broker's: run chmod g-w"):
        DataFolder(tmp_path)


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owned = os.stat(tmp_path)
    alien = os.stat_result((*owned[:4], 54321, *owned[5:]))
    monkeypatch.setattr(os, "fstat", lambda _: alien)
    with pytest.raises(PermissionError, match="it belongs to uid 54321"):
        DataFolder(tmp_path)


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o755])
def test_a_folder_where_others_may_only_read_is_used_and_left_as_it_is(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    DataFolder(tmp_path).close()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == mode


def test_a_link_of_our_own_is_followed_and_one_of_somebody_else_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, target = tmp_path / "link", tmp_path / "target"
    target.mkdir()
    link.symlink_to(target)
    DataFolder(link).close()
    assert (target / "epoch").exists()
    look = os.lstat

    def planted(path: str | Path) -> os.stat_result:
        found = look(path)
        return os.stat_result((*found[:4], 54321, *found[5:])) if str(path) == str(link) else found

    monkeypatch.setattr(os, "lstat", planted)
    with pytest.raises(PermissionError, match="it belongs to uid 54321"):
        DataFolder(link)


@pytest.mark.parametrize("name", ["lock", "epoch.new"])
def test_files_that_we_write_are_not_written_through_a_link(tmp_path: Path, name: str) -> None:
    precious = tmp_path.with_name("precious")
    precious.write_text("precious")
    (tmp_path / name).symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"):
        DataFolder(tmp_path)
    assert precious.read_text() == "precious"
