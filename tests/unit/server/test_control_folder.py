"""The folder of a controller's sockets: checks of its owner and mode, and removal of old sockets (R84)."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dragoman.sdk.address import UnixAddress
from dragoman.server import controller_folder, folders
from dragoman.server.controller_folder import ControllerFolder
from dragoman.streams.sockets import AddressInUse, listen_unix

Listen = Callable[[Path], socket.socket]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c"


@pytest.fixture
def folder(path: Path) -> ControllerFolder:
    return ControllerFolder(str(path), 0o700, [os.getuid(), 0])


@pytest.fixture
def listen() -> Iterator[Listen]:
    """A listening socket, until it is closed or the test ends."""
    made: list[socket.socket] = []

    def listen(path: Path) -> socket.socket:
        listening = socket.socket(socket.AF_UNIX)
        made.append(listening)
        listening.bind(str(path))
        listening.listen()
        return listening

    yield listen
    for each in made:
        each.close()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -------------------------------------------------------------------- making it


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o711, 0o770])
def test_it_is_made_with_the_mode_that_was_asked_for_whatever_the_umask(path: Path, mode: int) -> None:
    mask = os.umask(0o077)
    try:
        ControllerFolder(str(path), mode, [os.getuid()]).prepare()
    finally:
        os.umask(mask)
    assert mode_of(path) == mode


def test_one_that_is_there_is_left_as_it_is(path: Path, folder: ControllerFolder) -> None:
    path.mkdir()
    path.chmod(0o750)
    (path / "notes").write_text("mine")
    folder.prepare()
    assert mode_of(path) == 0o750
    assert (path / "notes").read_text() == "mine"


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
def test_one_where_everybody_may_write_is_refused(path: Path, folder: ControllerFolder, mode: int) -> None:
    path.mkdir()
    path.chmod(mode)
    with pytest.raises(OSError, match=f"all users may write there: run chmod o-w {path}"):
        folder.prepare()


def test_one_that_would_be_made_for_everybody_is_refused(path: Path) -> None:
    with pytest.raises(OSError, match="all users may write there"):
        ControllerFolder(str(path), 0o777, [os.getuid()]).prepare()


def test_one_of_somebody_else_is_refused(path: Path, folder: ControllerFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    path.mkdir()
    found = os.stat(path)
    alien = os.stat_result((*found[:4], 54321, *found[5:]))
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    monkeypatch.setattr(os, "fstat", lambda _: alien)
    with pytest.raises(OSError, match="it belongs to uid 54321, and must belong to uid 12345 or root"):
        folder.prepare()


def test_a_link_to_a_folder_is_not_followed(path: Path, folder: ControllerFolder) -> None:
    """Another user could create it in a folder that all users may write to, and redirect the broker to a folder of its
    own."""
    elsewhere = path.with_name("elsewhere")
    elsewhere.mkdir(mode=0o755)
    path.symlink_to(elsewhere)
    with pytest.raises(OSError, match="it is a symbolic link: name the folder itself"):
        folder.prepare()
    assert mode_of(elsewhere) == 0o755
    assert list(elsewhere.iterdir()) == []


def test_a_link_that_comes_between_the_look_and_the_opening_is_not_followed(
    path: Path, folder: ControllerFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = path.with_name("elsewhere")
    elsewhere.mkdir()
    path.symlink_to(elsewhere)
    monkeypatch.setattr(folders, "is_link", lambda _: False)
    with pytest.raises(OSError, match="it is not a folder"):
        folder.prepare()


def test_a_folder_that_is_replaced_while_we_start_is_left_alone(
    path: Path, folder: ControllerFolder, listen: Listen
) -> None:
    folder.prepare()
    path.rename(path.with_name("moved"))
    path.mkdir()
    listen(path / "1.sock").close()
    with pytest.raises(OSError, match="it was replaced by another folder"):
        folder.clear()
    assert (path / "1.sock").exists()


def test_a_file_is_not_a_folder(path: Path, folder: ControllerFolder) -> None:
    path.write_text("x")
    with pytest.raises(OSError, match="it is not a folder"):
        folder.prepare()


def test_a_folder_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ControllerFolder(str(tmp_path / "no" / "c"), 0o700, []).prepare()


def test_a_path_too_long_for_the_sockets_in_it_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    longest = 107 - len("/") - 16 - len(".sock")
    short = tmp_path / ("x" * (longest - len(str(tmp_path)) - 1))
    assert len(str(short)) == longest
    ControllerFolder(str(short), 0o700, []).prepare()
    long = tmp_path / (short.name + "x")
    with pytest.raises(OSError, match="too long") as problem:
        ControllerFolder(str(long), 0o700, []).prepare()
    assert problem.value.errno == errno.ENAMETOOLONG
    assert not long.exists()


# -------------------------------------------------------------------- clearing up


def test_only_sockets_named_by_a_number_are_cleared_away(path: Path, folder: ControllerFolder, listen: Listen) -> None:
    folder.prepare()
    for name in ("1.sock", "22.sock", "9007199254740993.sock"):
        listen(path / name).close()
    listen(path / "7.sock")  # of a worker of an earlier controller that is alive: it will register again
    kept = ("x.sock", "1.sock.bak", "-1.sock", "1 .sock", "sock", ".sock", "1.SOCK", "٣.sock", "main.sock")
    for name in kept:
        listen(path / name).close()
    (path / "5.sock").write_text("a file")
    (path / "6.sock").mkdir()
    listen(path / "target").close()
    (path / "8.sock").symlink_to(path / "target")
    folder.clear()
    assert {each.name for each in path.iterdir()} == {*kept, "5.sock", "6.sock", "8.sock", "target"}


def test_sockets_of_others_are_left_alone(path: Path, listen: Listen) -> None:
    folder = ControllerFolder(str(path), 0o700, [os.getuid() + 1])
    folder.prepare()
    listen(path / "1.sock").close()
    listen(path / "main.sock")
    folder.clear()
    assert (path / "1.sock").exists()


def test_what_cannot_be_removed_is_left(path: Path, folder: ControllerFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.prepare()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path / "1.sock"))

    def unlink(_: str, **where: int) -> None:
        raise PermissionError

    monkeypatch.setattr(controller_folder.os, "unlink", unlink)
    folder.clear()
    assert (path / "1.sock").exists()


# -------------------------------------------------------------------- the controller's own socket


def test_the_socket_of_a_live_controller_is_not_taken(path: Path, folder: ControllerFolder, listen: Listen) -> None:
    folder.prepare()
    listening = listen(Path(folder.main.path))
    with pytest.raises(AddressInUse, match="another program listens there"):
        listen_unix(folder.main.path)
    assert (path / "main.sock").exists()
    listening.accept()[0].close()


def test_the_socket_of_a_dead_controller_is_replaced(path: Path, folder: ControllerFolder, listen: Listen) -> None:
    folder.prepare()
    listen(Path(folder.main.path)).close()
    with listen_unix(folder.main.path), socket.socket(socket.AF_UNIX) as visitor:
        visitor.connect(folder.main.path)


def test_a_file_in_place_of_the_socket_is_not_removed(path: Path, folder: ControllerFolder) -> None:
    folder.prepare()
    (path / "main.sock").write_text("x")
    with pytest.raises(AddressInUse, match="is not a socket"):
        listen_unix(folder.main.path)


@pytest.mark.parametrize(("others", "mode"), [([], 0o600), ([0], 0o600), ([12345], 0o666)])
def test_the_controllers_socket_lets_those_in_who_are_allowed(path: Path, others: list[int], mode: int) -> None:
    folder = ControllerFolder(str(path), 0o711, [os.getuid(), *others])
    folder.prepare()
    with listen_unix(folder.main.path):
        folder.clear()
        assert mode_of(path / "main.sock") == mode


# -------------------------------------------------------------------- reaching workers


def test_a_workers_socket_is_reached_by_its_number(path: Path, folder: ControllerFolder, listen: Listen) -> None:
    folder.prepare()
    listen(path / "17.sock")
    assert folder.reach(17) == (UnixAddress(str(path / "17.sock")), "")


def test_what_is_not_there_and_what_is_no_socket_is_not_dialled(path: Path, folder: ControllerFolder) -> None:
    folder.prepare()
    place, problem = folder.reach(1)
    assert place is None
    assert "No such file" in problem
    (path / "2.sock").write_text("x")
    assert folder.reach(2) == (None, f"{path / '2.sock'} is not a socket")


def test_a_link_to_a_socket_is_not_followed(path: Path, folder: ControllerFolder, listen: Listen) -> None:
    folder.prepare()
    listen(path / "1.sock")
    (path / "2.sock").symlink_to(path / "1.sock")
    assert folder.reach(2)[0] is None


def test_a_socket_of_somebody_else_is_not_dialled(path: Path, listen: Listen) -> None:
    folder = ControllerFolder(str(path), 0o700, [os.getuid() + 1])
    folder.prepare()
    listen(path / "1.sock")
    place, problem = folder.reach(1)
    assert place is None
    assert "not in uid_allow" in problem
