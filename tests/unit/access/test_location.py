"""The place of the access folder, and a table that has vanished."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dragoman.access.location import MARKER, AccessPlaces, open_table
from dragoman.access.problems import AccessError

UID = os.getuid()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "etc" / "dragoman.toml"
    path.parent.mkdir()
    path.touch()
    return path


def made(path: Path) -> Path:
    path.mkdir(mode=0o700)
    return path


def test_without_a_folder_there_is_no_table(data: Path, config: Path) -> None:
    for places in (
        AccessPlaces("", config, data),
        AccessPlaces("", None, data),
        AccessPlaces("", config),
        AccessPlaces(),
    ):
        assert places.find() is None
        assert open_table(places, UID) is None
    assert os.listdir(data) == []


def test_folder_is_beside_the_configuration_file_or_in_the_data_folder(data: Path, config: Path) -> None:
    places = AccessPlaces("", config, data)
    assert places.place_for_new() == config.parent / "access"
    assert AccessPlaces("", None, data).place_for_new() == data / "access"
    in_data = made(data / "access")
    assert places.find() == in_data
    beside = made(config.parent / "access")
    with pytest.raises(AccessError, match="is an access folder, and so is"):
        places.find()
    in_data.rmdir()
    assert places.find() == beside
    in_data.mkdir()
    assert AccessPlaces(str(in_data), config, data).find() == in_data


def test_no_place_for_a_new_folder_is_an_error() -> None:
    with pytest.raises(AccessError, match="name it with --access"):
        AccessPlaces().place_for_new()


def test_named_folder_that_is_missing_is_an_error(tmp_path: Path, data: Path) -> None:
    made(data / "access")
    with pytest.raises(AccessError, match="does not exist, and the setting access names it"):
        open_table(AccessPlaces(str(tmp_path / "missing"), None, data), UID)


def test_vanished_table_does_not_fall_open(data: Path) -> None:
    places = AccessPlaces("", None, data)
    folder = made(data / "access")
    table = open_table(places, UID)
    assert table is not None
    assert table.entries == {}
    assert (data / MARKER).stat().st_mode & 0o777 == 0o600
    folder.rmdir()
    for _ in range(2):  # it stays an error
        with pytest.raises(AccessError) as caught:
            open_table(places, UID)
        assert str(folder) in str(caught.value)
        assert "start once with --no-access" in str(caught.value)
    assert open_table(places, UID, no_access=True) is None
    assert open_table(places, UID) is None


def test_a_broken_table_is_remembered_too(data: Path) -> None:
    """A table that was in order once is still required after a reload that failed."""
    places = AccessPlaces("", None, data)
    folder = made(data / "access")
    open_table(places, UID)
    (folder / "web.toml").write_text("nonsense")
    with pytest.raises(AccessError, match="is not TOML"):
        open_table(places, UID)
    (folder / "web.toml").unlink()
    folder.rmdir()
    with pytest.raises(AccessError, match="is missing"):
        open_table(places, UID)


def test_dangling_link_and_file_in_the_folders_place_do_not_fall_open(data: Path) -> None:
    places = AccessPlaces("", None, data)
    (data / "access").symlink_to("nothing")
    with pytest.raises(AccessError, match="cannot be read"):
        open_table(places, UID)
    (data / "access").unlink()
    (data / "access").touch()
    with pytest.raises(AccessError, match="must be a folder"):
        open_table(places, UID)


def test_place_that_cannot_be_looked_at_does_not_fall_open(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="cannot be looked at: File name too long"):
        AccessPlaces("", None, tmp_path / ("x" * 300)).find()
    with pytest.raises(AccessError, match="cannot be looked at"):
        AccessPlaces("a\0b").find()


def test_table_may_move(data: Path, tmp_path: Path) -> None:
    folder = made(data / "access")
    open_table(AccessPlaces("", None, data), UID)
    moved = folder.rename(tmp_path / "moved")
    open_table(AccessPlaces(str(moved), None, data), UID)
    assert (data / MARKER).read_text() == f"{moved}\n"
    with pytest.raises(AccessError, match=f"{moved}: is missing"):
        open_table(AccessPlaces("", None, data), UID)


def test_no_access_with_a_table_is_an_error(data: Path) -> None:
    made(data / "access")
    with pytest.raises(AccessError, match="exists, and --no-access was given"):
        open_table(AccessPlaces("", None, data), UID, no_access=True)
