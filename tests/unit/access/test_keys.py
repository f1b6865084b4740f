"""Key files: their form, and who may read them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dragoman.access.keys import key_file, keys_in, new_key_file, read_key_file, rotate_broker_key, user_key_folder
from dragoman.access.private_files import make_folder, write_file
from dragoman.access.problems import AccessError
from dragoman.carriers.curve_keys import certificate_text, new_key_pair

UID = os.getuid()
SEED = bytes(range(32))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert make_folder(tmp_path / "above" / "keys")
    return tmp_path / "above" / "keys"


def test_damaged_certificate_is_refused_without_its_keys(folder: Path) -> None:
    public, secret = new_key_pair(SEED)
    text = certificate_text(public, secret)
    key = text.split('"')[3]
    for wrong, problem in (
        (text.replace(key, key[:-1]), "Z85"),
        ("nothing", "public-key"),
        (text.replace("public-key", "# public-key"), "public-key"),
    ):
        write_file(key_file(folder, "a"), wrong.encode())
        with pytest.raises(AccessError, match=problem) as caught:
            read_key_file(key_file(folder, "a"), UID)
        assert key[:-1] not in str(caught.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_secret_file_that_others_may_read_is_refused(folder: Path, mode: int) -> None:
    path = key_file(folder, "gpu-1")
    new_key_file(folder, "gpu-1", SEED)
    path.chmod(mode)
    with pytest.raises(AccessError, match=f"other users may use it; run: chmod 600 {path}"):
        read_key_file(path, UID)
    assert read_key_file(path, UID, is_credential=True).public == new_key_pair(SEED)[0]
    path.chmod(0o400)
    folder.chmod(0o750)
    with pytest.raises(AccessError, match=f"other users may use it; run: chmod 700 {folder}$"):
        read_key_file(path, UID)
    folder.chmod(0o700)
    assert read_key_file(path, UID).public == new_key_pair(SEED)[0]


def test_missing_key_file_is_refused_with_the_next_step(folder: Path) -> None:
    with pytest.raises(
        AccessError, match="cannot be read: No such file or directory; make one with `dragoman keys new`"
    ):
        read_key_file(key_file(folder, "none"), UID)
    with pytest.raises(AccessError, match="is not a file"):
        read_key_file(folder, UID)


def test_key_file_is_private_from_its_first_byte_and_never_replaced(folder: Path) -> None:
    path = key_file(folder, "gpu-1")
    old = os.umask(0)
    try:
        new_key_file(folder, "gpu-1", SEED)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        new_key_file(folder, "gpu-1", SEED[::-1])
    assert path.read_bytes() == before
    assert os.listdir(folder) == [path.name]


def test_folder_lists_its_keys(folder: Path) -> None:
    assert keys_in(folder / "none", UID) == {}
    for number, name in enumerate(("b", "a")):
        new_key_file(folder, name, bytes([number]) * 32)
    assert list(keys_in(folder, UID)) == ["a", "b"]


def test_rotation_keeps_the_last_key_of_the_broker(folder: Path) -> None:
    keys = []
    for number in range(3):
        if number:
            rotate_broker_key(folder)
        keys.append(new_key_file(folder, "broker", bytes([number]) * 32))
    assert keys_in(folder, UID) == {"broker": keys[2], "broker-old": keys[1]}


def test_keys_of_a_user_are_in_the_configuration_folder() -> None:
    assert user_key_folder({"HOME": "/h"}) == Path("/h/.config/dragoman/keys")
    assert user_key_folder({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}) == Path("/x/dragoman/keys")
    assert user_key_folder({"HOME": "/h", "XDG_CONFIG_HOME": "x"}) == Path("/h/.config/dragoman/keys")
