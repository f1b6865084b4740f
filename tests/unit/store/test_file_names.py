"""The rename of the store's files from their older names, on the folders in `tests/fixtures/store-2885e3f`."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.store import file_names
from dragoman.store.errors import StoreError
from dragoman.store.file_names import adopt_older, name_in
from dragoman.store.losses import before_opening, is_there, without_store

from .test_losses import copied
from .test_upgrade import FIXTURES, KINDS, check_all


def older(kind: str, target: Path) -> tuple[Path, dict[str, list[str]]]:
    shutil.copytree(FIXTURES / kind, target)
    return target, json.loads((target / "ids.json").read_text())


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir() if ".db" in each.name}


@pytest.mark.parametrize("kind", KINDS)
def test_files_get_their_present_names(tmp_path: Path, kind: str) -> None:
    folder, ids = older(kind, tmp_path / "data")
    before = {name.replace("diary", "store") for name in names(folder)}
    assert (is_there(folder), name_in(folder)) == (True, "diary.db")
    adopt_older(folder)
    assert (names(folder), name_in(folder)) == (before, "store.db")
    adopt_older(folder)
    assert names(folder) == before
    check_all(folder, ids)


@pytest.mark.parametrize("has_links", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_rename_that_is_killed_goes_on(
    tmp_path: Path, kind: str, has_links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every instant between two changes of the folder, the file has its log beside it."""
    folder, ids = older(kind, tmp_path / "data")
    images: list[Path] = []

    def before(act: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*facts: Any, **more: Any) -> Any:
            images.append(copied(folder, tmp_path / f"image-{len(images)}"))
            return act(*facts, **more)

        return wrapped

    def refuse(*_: object) -> None:
        raise PermissionError(1, "no hard links here")

    monkeypatch.setattr(os, "link", before(os.link) if has_links else refuse)
    monkeypatch.setattr(os, "rename", before(os.rename))
    monkeypatch.setattr(file_names, "sync_folder", before(file_names.sync_folder))
    adopt_older(folder)
    monkeypatch.undo()
    images.append(copied(folder, tmp_path / f"image-{len(images)}"))
    assert len(images) > 3
    for image in images:
        adopt_older(image)
        assert names(image) <= {"store.db", "store.db-wal", "store.db-wal.new"}
        check_all(image, ids)


@pytest.mark.parametrize(
    ("renamed", "found"),
    [
        ({"diary.db-wal": "store.db-wal"}, "both diary.db and store.db-wal"),
        ({"diary.db": "store.db"}, "both store.db and diary.db-wal"),
    ],
)
def test_half_of_a_store_that_was_renamed_by_hand_is_refused(
    tmp_path: Path, renamed: dict[str, str], found: str
) -> None:
    """It started without the jobs in the log, or removed the log."""
    folder, ids = older("killed", tmp_path / "data")
    for name, fresh in renamed.items():
        (folder / name).rename(folder / fresh)
    before = {each: each.read_bytes() for each in folder.iterdir()}
    with pytest.raises(StoreError, match=f"{re.escape(found)}: a file and its log belong together"):
        adopt_older(folder)
    assert {each: each.read_bytes() for each in folder.iterdir()} == before
    for name, fresh in renamed.items():
        (folder / fresh).rename(folder / name)
    adopt_older(folder)
    check_all(folder, ids)


def test_folder_with_both_files_is_refused(tmp_path: Path) -> None:
    """Also if one of them was moved away without its log: that log was removed."""
    folder, _ = older("killed", tmp_path / "data")
    shutil.copyfile(folder / "diary.db", folder / "store.db")
    (folder / "store.db-wal").write_bytes(b"log of another store")
    with pytest.raises(StoreError, match=r"both diary\.db and store\.db: a file and its log belong together"):
        adopt_older(folder)
    (folder / "store.db").unlink()
    with pytest.raises(StoreError, match=r"both diary\.db and store\.db-wal: a file and its log belong together"):
        adopt_older(folder)
    assert (folder / "store.db-wal").read_bytes() == b"log of another store"


def test_lost_file_is_noticed_under_its_older_name(tmp_path: Path) -> None:
    folder, _ = older("killed", tmp_path / "data")
    (folder / "diary.db").unlink()
    adopt_older(folder)
    assert names(folder) == {"store.db-wal"}
    assert without_store(folder) is not None
    assert before_opening(folder) is not None
