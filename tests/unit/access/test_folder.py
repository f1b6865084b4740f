"""Access folders: all files or none, and who may own and change them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dragoman.access.folder import MAX_FILES, load_folder
from dragoman.access.identities import IdentityKind
from dragoman.access.private_files import check_owner
from dragoman.access.problems import AccessError
from dragoman.access.table import AccessTable
from dragoman.access.tokens import new_token, token_hash

UID = os.getuid()
NOW = 1_000.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "access"
    path.mkdir(mode=0o700)
    return path


def put(folder: Path, name: str, text: str = "", mode: int = 0o600) -> Path:
    path = folder / name
    path.write_text(text)
    path.chmod(mode)
    return path


def problems(folder: Path, uid: int = UID) -> list[str]:
    with pytest.raises(AccessError) as caught:
        load_folder(folder, uid)
    return [str(each) for each in caught.value.problems]


def names(table: AccessTable) -> list[str]:
    return list(table.entries)


def test_an_empty_folder_is_a_table_without_principals(folder: Path) -> None:
    assert names(load_folder(folder, UID)) == []


def test_only_toml_files_that_are_not_hidden_are_principals(folder: Path) -> None:
    for name in ("web.toml", "gpu-1.toml", "a.b_c.toml"):
        put(folder, name)
    for name in (".web.toml.7.new", ".hidden.toml", "web.toml~", "web.toml.bak", "README"):
        put(folder, name, "not toml", 0o666)
    assert names(load_folder(folder, UID)) == ["a.b_c", "gpu-1", "web"]


def test_bad_access_file_changes_nothing(folder: Path) -> None:
    """One bad file, and no principal is read; all problems of all files are named."""
    put(folder, "good.toml", 'call = ["*"]')
    put(folder, "one.toml", "cal = []\nmax_rate = 0")
    put(folder, "two.toml", "[", 0o600)
    put(folder, "three.toml", "", 0o620)
    files = [each.split(",")[0].split(":")[0] for each in problems(folder)]
    assert files == [str(folder / f"{name}.toml") for name in ("one", "one", "three", "two")]


def test_an_identity_belongs_to_one_principal(folder: Path) -> None:
    put(folder, "a.toml", f'curve = ["{"3f" * 32}"]\nuid = [1, 2]')
    put(folder, "b.toml", "uid = [3, 2]")
    put(folder, "c.toml", f'gid = [1]\ntoken = ["sha256:{"3f" * 32}"]\ntls_key = ["sha256:{"3f" * 32}"]')
    (problem,) = problems(folder)
    assert problem.startswith(f"{folder / 'b.toml'}: uid has 2, which {folder / 'a.toml'} has, too")


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_file_that_others_may_write_is_refused(folder: Path, mode: int) -> None:
    path = put(folder, "web.toml", mode=mode)
    assert problems(folder) == [f"{path}: other users may write to it; run: chmod go-w {path}"]


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o644, 0o440])
def test_file_that_others_may_read_is_accepted(folder: Path, mode: int) -> None:
    """It has no secrets, only hashes and public keys."""
    put(folder, "web.toml", mode=mode)
    assert names(load_folder(folder, UID)) == ["web"]


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_folder_that_others_may_write_is_refused(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    assert problems(folder) == [f"{folder}: other users may write to it; run: chmod go-w {folder}"]


@pytest.mark.skipif(UID != 0, reason="only root can give files away")
def test_file_of_another_user_is_refused(folder: Path) -> None:
    path = put(folder, "web.toml")
    os.chown(path, 4_711, -1)
    wrong = f"{path}: belongs to uid 4711, and must belong to uid {UID} or root; run: chown {UID} {path}"
    assert problems(folder) == [wrong]
    assert names(load_folder(folder, 4_711)) == ["web"]


@pytest.mark.skipif(UID != 0, reason="only root can give files away")
def test_folder_of_another_user_is_refused(folder: Path) -> None:
    os.chown(folder, 4_711, -1)
    wrong = f"{folder}: belongs to uid 4711, and must belong to uid {UID} or root; run: chown {UID} {folder}"
    assert problems(folder) == [wrong]


def test_owner_is_the_user_or_root(folder: Path) -> None:
    found = folder.stat()
    check_owner(folder, found, UID)
    check_owner(folder, os.stat("/"), 4_711)
    foreign = os.stat_result((*found[:4], 4_712, *found[5:]))
    with pytest.raises(AccessError, match="belongs to uid 4712, and must belong to uid 4711 or root"):
        check_owner(folder, foreign, 4_711)


@pytest.mark.skipif(UID != 0, reason="only root can give links away")
def test_folder_behind_a_link_of_another_user_is_refused(folder: Path) -> None:
    link = folder.with_name("link")
    link.symlink_to(folder)
    assert names(load_folder(link, UID)) == []
    os.chown(link, 4_711, -1, follow_symlinks=False)
    assert "belongs to uid 4711" in problems(link)[0]


def test_link_within_the_folder_is_followed(folder: Path) -> None:
    """Kubernetes mounts files in this way."""
    (folder / "..2027").mkdir()
    put(folder / "..2027", "web.toml", 'call = ["a"]')
    (folder / "..data").symlink_to("..2027")
    (folder / "web.toml").symlink_to("..data/web.toml")
    assert names(load_folder(folder, UID)) == ["web"]


def test_link_out_of_the_folder_is_refused(folder: Path) -> None:
    outside = put(folder.parent, "web.toml")
    (folder / "web.toml").symlink_to(outside)
    wrong = "is a symbolic link to a place outside of the folder; copy the file here"
    assert problems(folder) == [f"{folder / 'web.toml'}: {wrong}"]


def test_what_is_not_a_file_is_refused(folder: Path) -> None:
    (folder / "dir.toml").mkdir()
    os.mkfifo(folder / "pipe.toml")
    (folder / "dangling.toml").symlink_to("nothing")
    found = problems(folder)
    assert [each.split(": ")[1] for each in found] == [
        "cannot be read",
        "is not a file; remove it, or name another",
        "is not a file; remove it, or name another",
    ]


def test_suffix_in_capitals_is_refused(folder: Path) -> None:
    path = put(folder, "web.TOML")
    assert problems(folder) == [f"{path}: must end in .toml, in small letters; rename it"]


def test_too_many_files_are_refused(folder: Path) -> None:
    for number in range(MAX_FILES):
        (folder / f"p{number}.toml").touch(0o600)
    assert len(load_folder(folder, UID).entries) == MAX_FILES
    (folder / "last.toml").touch(0o600)
    wrong = "has 1001 principals; at most 1000 are allowed: remove unused ones"
    assert problems(folder) == [f"{folder}: {wrong}"]


def test_missing_folder_and_file_in_its_place_are_refused(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in problems(tmp_path / "missing")[0]
    path = put(tmp_path, "file")
    assert "cannot be read: Not a directory; it must be a folder" in problems(path)[0]


def test_principals_are_found_by_each_kind_of_identity(folder: Path) -> None:
    token = new_token(b"\x01" * 32).reveal().decode()
    put(folder, "web.toml", f'token = ["sha256:{token_hash(token).hex()}"]\nexpires = 1970-01-01T01:00:00Z')
    put(folder, "gpu.toml", f'curve = ["{"3f" * 32}"]\ngid = [7]')
    put(folder, "ops.toml", f'uid = [5]\ngid = [8]\ntls_name = ["a", "b"]\ntls_key = ["sha256:{"11" * 32}"]')
    put(folder, "dev.toml", 'tls_name = ["c"]')
    table = load_folder(folder, UID)
    web, gpu, ops, dev = (table.entries[name] for name in ("web", "gpu", "ops", "dev"))
    assert table.by_token(token, NOW) is web
    assert table.by_curve(b"\x3f" * 32, NOW) is gpu
    assert table.by_uid(5, NOW) is ops
    assert table.by_tls_key(b"\x11" * 32, NOW) is ops
    assert table.by_tls_names(["x", "b", "a"], NOW) is ops
    assert table.by_tls_names(["c"], NOW) is dev
    assert table.by_gids([1, 8], NOW) is ops
    assert table.by_gids([7, 9], NOW) is gpu
    unknown = [
        table.by_token(token[:-1], NOW),
        table.by_token("\udc80", NOW),
        table.by_token("", NOW),
        table.by_curve(b"\x11" * 32, NOW),
        table.by_tls_key(b"\x3f" * 32, NOW),
        table.by_uid(8, NOW),
        table.by_gids([5], NOW),
        table.by_gids([], NOW),
        table.by_tls_names([], NOW),
        table.by_gids([7, 8], NOW),  # of two principals
        table.by_tls_names(["a", "c"], NOW),
    ]
    assert unknown == [None] * len(unknown)
    assert [table.has(kind) for kind in IdentityKind] == [True] * 6
    assert not AccessTable([]).has(IdentityKind.UID)


def test_expired_principal_is_not_found(folder: Path) -> None:
    token = new_token(b"\x01" * 32).reveal().decode()
    hashed = token_hash(token).hex()
    expires = "expires = 1970-01-01T01:00:00Z"
    put(folder, "web.toml", f'token = ["sha256:{hashed}"]\nuid = [1]\ngid = [2]\ntls_name = ["a"]\n{expires}')
    put(folder, "ops.toml", "uid = [3]")
    put(folder, "old.toml", "expires = 1970-01-01T00:10:00Z")
    table = load_folder(folder, UID)
    for now, is_found in ((3_599.9, True), (3_600.0, False)):
        found = [
            table.by_token(token, now),
            table.by_uid(1, now),
            table.by_gids([2], now),
            table.by_tls_names(["a"], now),
        ]
        assert [each is not None for each in found] == [is_found] * 4
        assert list(table.accounts(now)) == (["ops", "web"] if is_found else ["ops"])
    assert [table.next_expiry(now) for now in (0.0, 600.0, 3_599.0, 3_600.0)] == [600.0, 3_600.0, 3_600.0, None]


def test_access_folder_holds_no_secret(folder: Path) -> None:
    """The hash of a token does not lead back to it: neither hash nor file is accepted in its place."""
    token = new_token(b"\x01" * 32).reveal().decode()
    hashed = token_hash(token)
    put(folder, "web.toml", f'token = ["sha256:{hashed.hex()}"]')
    table = load_folder(folder, UID)
    assert [table.by_token(each, NOW) for each in (hashed.hex(), f"sha256:{hashed.hex()}", f"dgm_{hashed.hex()}")] == [
        None
    ] * 3
