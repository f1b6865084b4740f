"""Changes in an access folder: one file at once, by several commands at the same time."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dragoman.access.changes import allow, remove, revoke
from dragoman.access.folder import MAX_FILES, load_folder
from dragoman.access.identities import Identity, IdentityKind
from dragoman.access.private_files import make_folder, write_file
from dragoman.access.problems import AccessError
from dragoman.core.rights import CALL, WORK

UID = os.getuid()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_folder(tmp_path / "access")
    return tmp_path / "access"


def uid(number: int) -> Identity:
    return Identity(IdentityKind.UID, number)


def test_changes_keep_comments_and_order(folder: Path) -> None:
    path = folder / "web.toml"
    path.write_text('# the shop\ncall = [\n  "mail", # orders\n]\n\nuid = [1] # www\n')
    allow(folder, UID, "web", [uid(2)], {CALL: ["resize"], WORK: ["w"]}, "# not used\n")
    changed = '# the shop\ncall = [\n  "mail", # orders\n  "resize",\n]\n\nuid = [1, 2] # www\nwork = ["w"]\n'
    assert path.read_text() == changed
    revoke(folder, UID, "web", uid(1))
    assert path.read_text() == changed.replace("[1, 2]", "[2]")
    assert path.stat().st_mode & 0o777 == 0o600


def test_change_that_changes_nothing_writes_nothing(folder: Path) -> None:
    allow(folder, UID, "web", [uid(2)], {CALL: ["resize"]}, "")
    before = (folder / "web.toml").stat()
    allow(folder, UID, "web", [uid(2)], {CALL: ["resize"]}, "")
    assert (folder / "web.toml").stat() == before


def test_identity_in_another_form_is_found(folder: Path) -> None:
    key = Identity(IdentityKind.CURVE, b"\xab" * 32)
    path = folder / "gpu.toml"
    path.write_text(f'curve = ["{"AB" * 32}"]\n')
    allow(folder, UID, "gpu", [key], {}, "")
    assert path.read_text() == f'curve = ["{"AB" * 32}"]\n'
    revoke(folder, UID, "gpu", key)
    assert path.read_text() == "curve = []\n"


def test_change_that_would_break_the_table_is_refused(folder: Path) -> None:
    allow(folder, UID, "a", [uid(1)], {}, "")
    before = (folder / "a.toml").read_bytes()
    for name, identities, patterns, problem in (
        ("b", [uid(1)], {}, "uid has 1, which .* has, too"),
        ("b", [], {CALL: ["a*b"]}, "has a '\\*' before its last character"),
        ("a", [], {CALL: ["ok", ""]}, "not 1 to 128 bytes"),
        ("B", [uid(3)], {}, "'B' is not the name of a principal"),
        ("../b", [uid(3)], {}, "is not the name of a principal"),
        ("local", [uid(3)], {}, "'local' is built in"),
        ("anyone", [uid(3)], {}, "uid identifies peers"),
    ):
        with pytest.raises(AccessError, match=problem):
            allow(folder, UID, name, identities, patterns, "# head\n")
    assert os.listdir(folder) == ["a.toml"]
    assert (folder / "a.toml").read_bytes() == before


def test_list_in_another_form_is_named_with_its_line(folder: Path) -> None:
    path = folder / "web.toml"
    path.write_text('# x\n"uid" = [1]\n')
    with pytest.raises(AccessError) as caught:
        allow(folder, UID, "web", [uid(2)], {}, "")
    advice = "the list uid is written in a way that this command does not change; write uid = [1, 2]"
    assert str(caught.value) == f"{path}, line 2: {advice}"
    assert path.read_text() == '# x\n"uid" = [1]\n'


def test_broken_file_prevents_additions_and_not_revocations(folder: Path) -> None:
    allow(folder, UID, "web", [uid(1)], {}, "")
    (folder / "broken.toml").write_text("nonsense")
    with pytest.raises(AccessError, match=r"broken.toml, line 1: is not TOML"):
        allow(folder, UID, "web", [uid(2)], {}, "")
    assert revoke(folder, UID, "web", uid(1)).identities == ()
    remove(folder, UID, "broken")
    assert load_folder(folder, UID).entries["web"].identities == ()


def test_principals_beyond_the_limit_are_refused(folder: Path) -> None:
    for number in range(MAX_FILES):
        (folder / f"p{number}.toml").touch(0o600)
    with pytest.raises(AccessError, match="has 1000 principals, the maximum"):
        allow(folder, UID, "web", [uid(1)], {}, "")
    allow(folder, UID, "p1", [uid(1)], {}, "")


def test_only_principals_can_be_removed(folder: Path) -> None:
    outside = folder.parent / "web.toml"
    outside.touch()
    for name, problem in (("web", "there is no principal 'web'"), ("../web", "is not the name"), ("local", "built in")):
        with pytest.raises(AccessError, match=problem):
            remove(folder, UID, name)
    assert outside.exists()


def test_changes_at_the_same_time_are_all_kept(folder: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: allow(folder, UID, "web", [uid(number)], {}, "# head\n"), range(40)))
    assert set(load_folder(folder, UID).entries["web"].identities) == {uid(number) for number in range(40)}
    assert os.listdir(folder) == ["web.toml"]


def test_write_that_fails_leaves_the_file_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "web.toml"
    write_file(path, b"before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left") as caught:
            write_file(path, b"after")
        assert caught.value.filename == str(path)
    assert path.read_bytes() == b"before"
    assert os.listdir(folder) == ["web.toml"]


@pytest.mark.skipif(UID != 0, reason="only root can give files away")
def test_files_that_root_makes_belong_to_the_owner_of_the_folder(tmp_path: Path) -> None:
    """Root ran a command for a broker of another user, which then could not read the file."""
    os.chown(tmp_path, 4_711, 4_712)
    make_folder(tmp_path / "new" / "access")
    allow(tmp_path / "new" / "access", 4_711, "web", [uid(1)], {}, "")
    for path in (tmp_path / "new", tmp_path / "new" / "access", tmp_path / "new" / "access" / "web.toml"):
        assert (path.stat().st_uid, path.stat().st_gid) == (4_711, 4_712)
