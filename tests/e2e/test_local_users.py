"""Users of this machine: who may connect to a broker on loopback and on Unix sockets (T22)."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.streams.socket_owner import PeerGone, SocketOwners
from programs import PATIENCE, Program, Programs
from users import ALICE, BOB, NOBODY, ROOT, as_user, connected, first_bytes, response

URLS = ("tcp://127.0.0.1:0", "pingpong+tcp://127.0.0.1:0?frontend=0", "memodb+tcp://127.0.0.1:0", "http://127.0.0.1:0")
GREETINGS = {"native": "ff", "workers": "ff", "callers": "ff", "memodb": "005350"}  # ZMTP, and SP of nanomsg
OPTION = "loopback=anyone"


class Setup:
    """A broker with a listener of each kind."""

    def __init__(
        self, programs: Programs, *, user: int | None = None, option: str = "", host: str = "", loop: str = ""
    ):
        urls = [url.replace("127.0.0.1", host) if host else url for url in URLS]
        urls = [f"{url}{'&' if '?' in url else '?'}{option}" if option else url for url in urls]
        words = ["serve", *urls, "--data", "memory", "--strict", "--log", "human", "--loop", loop or "auto"]
        self.program = programs.dragoman(*words) if user is None else programs.dragoman_as(user, *words)
        self.http = self.program.prints(r"http +(http://\S+) +both")
        self.places = {
            "native": self.program.prints(r"native +(tcp://\S+) +both"),
            "workers": self.program.prints(r"pingpong +(tcp://\S+) +workers"),
            "callers": self.program.prints(r"pingpong +(tcp://\S+) +callers"),
            "memodb": self.program.prints(r"memodb +(tcp://\S+) +both"),
        }

    def admits(self, uid: int) -> bool:
        """Connect to every listener as this user. All must agree."""
        verdicts = {}
        for name, place in self.places.items():
            greeting = as_user(uid, first_bytes, place)
            assert greeting == "" or greeting.startswith(GREETINGS[name])
            verdicts[name] = bool(greeting)
        verdicts["http"] = as_user(uid, response, self.http, "/v1/services")[0] == 200
        [verdict] = set(verdicts.values()) if len(set(verdicts.values())) == 1 else [verdicts]
        assert isinstance(verdict, bool), verdict
        return verdict

    def lines(self, event: str) -> list[str]:
        return [line for line in self.program.err.splitlines() if event in line]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may enter: those of pytest are private."""
    with tempfile.TemporaryDirectory(prefix="dragoman-users-") as path:
        os.chmod(path, 0o711)
        yield Path(path)


# -------------------------------------------------------------------- TCP


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_another_user_is_rejected_and_root_is_not(programs: Programs, host: str) -> None:
    setup = Setup(programs, host=host)
    assert {uid: setup.admits(uid) for uid in (ALICE, NOBODY, ROOT)} == {ALICE: False, NOBODY: False, ROOT: True}


def test_a_broker_of_an_ordinary_user_admits_that_user_and_root(programs: Programs) -> None:
    setup = Setup(programs, user=ALICE)
    assert {uid: setup.admits(uid) for uid in (ALICE, BOB, ROOT)} == {ALICE: True, BOB: False, ROOT: True}


def test_jobs_of_the_broker_s_own_user_are_run_and_those_of_others_are_not(programs: Programs) -> None:
    setup = Setup(programs, user=ALICE)
    url = setup.places["native"]
    worker = programs.dragoman_as(ALICE, "worker", "--exec", "cat", "--service", "echo", "--connect", url)
    worker.prints("connected to")
    called = programs.dragoman_as(ALICE, "call", "echo", "hello", "--connect", url, "--timeout", PATIENCE)
    assert (called.ends(), called.out) == (0, "hello")
    stranger = programs.dragoman_as(BOB, "call", "echo", "hello", "--connect", url, "--timeout", 2)
    assert (stranger.ends() != 0, stranger.out) == (True, "")


def test_anyone_lets_every_user_in(programs: Programs) -> None:
    setup = Setup(programs, option=OPTION)
    assert {uid: setup.admits(uid) for uid in (ALICE, NOBODY, ROOT)} == {ALICE: True, NOBODY: True, ROOT: True}
    assert response(setup.http, "/v1/services", fields="X-Forwarded-For: 192.0.2.1\r\n")[0] == 200


def test_a_rejected_user_is_logged_once_with_the_advice(programs: Programs) -> None:
    setup = Setup(programs, user=ALICE)
    for _ in range(3):
        assert not setup.admits(BOB)
    assert as_user(BOB, response, setup.http, "/v1/services")[0] == 403
    [line] = setup.lines("connection rejected")
    assert f"uid {BOB} is not the broker's user (uid {ALICE}), nor root" in line
    assert f"dragoman access allow NAME --uid {BOB}" in line
    assert "loopback=anyone" in line
    rejected = re.search(r"^dragoman_connections_rejected_total (\d+)", response(setup.http, "/metrics")[1], re.M)
    assert rejected is not None
    assert int(rejected[1]) == 3 * len(setup.places)


@pytest.mark.parametrize("flags", [(), ("loopback=owner",)], ids=["default", "owner"])
def test_a_broker_of_the_overflow_user_needs_another_rule(programs: Programs, flags: tuple[str, ...]) -> None:
    url = "?".join(["tcp://127.0.0.1:0", *flags])
    broker = programs.dragoman_as(NOBODY, "serve", url, "--data", "memory")
    assert broker.ends() == 2
    assert f"the broker runs as uid {NOBODY}" in broker.err
    assert "run it as a user of its own, or write loopback=anyone" in broker.err
    assert Setup(programs, user=NOBODY, option=OPTION).admits(ALICE)


def test_a_table_that_does_not_exist_is_an_error(programs: Programs) -> None:
    broker = programs.run("serve", "tcp://127.0.0.1:0?loopback=table", "--data", "memory")
    assert broker.ends() == 2
    assert "there is no access table; write loopback=owner or loopback=anyone" in broker.err


def test_off_loopback_nothing_changes(programs: Programs) -> None:
    broker = programs.dragoman("serve", "tcp://0.0.0.0:0?insecure=true", "--data", "memory")
    port = broker.prints(r"native +tcp://0\.0\.0\.0:(\d+) ")
    assert as_user(ALICE, first_bytes, f"tcp://127.0.0.1:{port}").startswith("ff")


# -------------------------------------------------------------------- HTTP


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_http_answers_another_user_with_the_advice(programs: Programs, loop: str) -> None:
    setup = Setup(programs, loop=loop)
    for uid in (ALICE, NOBODY):
        status, body = as_user(uid, response, setup.http, "/v1/services")
        problem = json.loads(body)
        assert (status, problem["type"]) == (403, "urn:dragoman:another-user")
        assert f"uid {uid} " in problem["detail"]
        assert "loopback=anyone" in problem["detail"]
        for path, expected in {"/livez": 200, "/readyz": 200, "/v1/health": 403, "/metrics": 403}.items():
            assert as_user(uid, response, setup.http, path)[0] == expected, path
        assert as_user(uid, response, setup.http, "/livez", "POST")[0] == 403
    assert response(setup.http, "/v1/health")[0] == 200


def test_health_checks_of_another_user_are_not_logged(programs: Programs) -> None:
    setup = Setup(programs)
    assert as_user(ALICE, response, setup.http, "/livez")[0] == 200
    assert as_user(ALICE, response, setup.http, "/v1/services")[0] == 403
    assert len(setup.lines("rejected")) == 1


def test_a_forwarded_request_is_rejected(programs: Programs) -> None:
    """All clients of a proxy have the user of the proxy."""
    setup = Setup(programs)
    for field in ("Forwarded: for=192.0.2.1", "X-Forwarded-For: 192.0.2.1", "x-forwarded-proto: https"):
        status, body = response(setup.http, "/v1/services", fields=f"{field}\r\n")
        assert (status, json.loads(body)["type"]) == (403, "urn:dragoman:forwarded"), field
        assert "A proxy is in front: write auth=token" in json.loads(body)["detail"]
        assert response(setup.http, "/readyz", fields=f"{field}\r\n")[0] == 200


# -------------------------------------------------------------------- Unix sockets


def serve_unix(programs: Programs, folder: Path, options: str) -> tuple[Program, str]:
    path = folder / "broker.sock"
    broker = programs.dragoman("serve", f"ipc://{path}{options}", "--data", "memory", "--log", "human")
    broker.prints("is listening")
    return broker, f"ipc://{path}"


def test_a_unix_socket_is_private(programs: Programs, folder: Path) -> None:
    _, url = serve_unix(programs, folder, "")
    assert stat.S_IMODE((folder / "broker.sock").stat().st_mode) == 0o600
    with pytest.raises(AssertionError, match="PermissionError"):
        as_user(ALICE, first_bytes, url)
    assert first_bytes(url).startswith("ff")


def test_the_file_of_a_unix_socket_has_the_mode_and_group_of_its_options(programs: Programs, folder: Path) -> None:
    """The umask does not apply: the systemd unit has 0077."""
    before = os.umask(0o077)
    try:
        broker, url = serve_unix(programs, folder, f"?mode=0660&group={ALICE}&{OPTION}")
    finally:
        os.umask(before)
    found = (folder / "broker.sock").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o660, ALICE)
    assert as_user(ALICE, first_bytes, url).startswith("ff")
    with pytest.raises(AssertionError, match="PermissionError"):
        as_user(BOB, first_bytes, url)
    broker.terminate()
    assert broker.ends() == 0
    assert list(folder.iterdir()) == []


def test_a_file_that_is_open_to_a_user_does_not_admit_the_user(programs: Programs, folder: Path) -> None:
    broker, url = serve_unix(programs, folder, f"?mode=660&group={ALICE}")
    assert as_user(ALICE, first_bytes, url) == ""
    assert first_bytes(url).startswith("ff")
    assert f"uid {ALICE} is not the broker's user" in broker.prints(r"connection rejected.*")


def test_a_group_that_the_broker_is_not_in_is_an_error(programs: Programs, folder: Path) -> None:
    os.chmod(folder, 0o777)
    broker = programs.dragoman_as(ALICE, "serve", f"ipc://{folder}/x.sock?mode=0660&group={BOB}", "--data", "memory")
    assert broker.ends() == 2
    assert f"group {BOB} is not one of the broker's groups; add the broker to it" in broker.err
    assert list(folder.iterdir()) == []


# -------------------------------------------------------------------- sockets that prove nothing


@pytest.fixture
def owners() -> Iterator[SocketOwners]:
    owners = SocketOwners()
    yield owners
    owners.close()


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening


def url_of(listening: socket.socket) -> str:
    return f"tcp://127.0.0.1:{listening.getsockname()[1]}"


def test_a_socket_has_the_user_that_opened_it(owners: SocketOwners, listening: socket.socket) -> None:
    def ask() -> int | None:
        with connected(url_of(listening)), listening.accept()[0] as accepted:
            return owners.uid_of_peer(accepted)

    assert [as_user(uid, ask) for uid in (ALICE, NOBODY, ROOT)] == [ALICE, NOBODY, ROOT]


def fill_and_close(url: str) -> int:
    """Send more than the other side takes, and close: the kernel keeps the socket until all has been read."""
    with connected(url) as connection:
        connection.setblocking(False)
        try:
            while True:
                connection.send(bytes(65_536))
        except BlockingIOError:
            port: int = connection.getsockname()[1]
            return port


def test_an_orphaned_socket_is_nobody(owners: SocketOwners, listening: socket.socket) -> None:
    """The kernel reported user 0, root, for a socket whose process had closed it before it was asked."""
    as_user(ALICE, fill_and_close, url_of(listening))
    accepted, _ = listening.accept()
    with accepted:
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 1, "this end is still open"
        assert owners.uid_of_peer(accepted) is None


def test_a_peer_that_has_gone_is_nobody(owners: SocketOwners, listening: socket.socket) -> None:
    def come_and_go() -> None:
        connected(url_of(listening)).close()

    as_user(ALICE, come_and_go)
    accepted, _ = listening.accept()
    with accepted:
        try:
            assert owners.uid_of_peer(accepted) is None  # the end of the connection has not arrived yet
        except PeerGone:
            pass


def bound(port: int = 0) -> socket.socket:
    """Return a socket that shares its port with others that are bound by this function."""
    sharing = socket.socket()
    sharing.settimeout(PATIENCE)
    sharing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sharing.bind(("127.0.0.1", port))
    return sharing


def connect_to(url: str, sharing: socket.socket) -> None:
    sharing.connect(("127.0.0.1", int(url.rpartition(":")[2])))


def send_and_reset(url: str, data: str, port: int) -> None:
    """Connect from this port, send, and reset the connection."""
    with bound(port) as connection:
        connect_to(url, connection)
        connection.sendall(data.encode())
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_a_reset_peer_is_not_taken_for_the_next(owners: SocketOwners, listening: socket.socket) -> None:
    """The kernel names the owner of the second socket on the port, and the first connection has bytes to read."""
    with bound() as own:
        as_user(ALICE, send_and_reset, url_of(listening), "a job", own.getsockname()[1])
        connect_to(url_of(listening), own)
        first, name = listening.accept()
        second, same_name = listening.accept()
        with first, second:
            assert name == same_name == own.getsockname()
            assert owners.uid_between(name, first.getsockname()) == ROOT
            for each in (first, NamedEarlier(first, name)):
                with pytest.raises(PeerGone):
                    owners.uid_of_peer(each)
            assert owners.uid_of_peer(second) == ROOT


class NamedEarlier:
    """A connection that is reset just after its name has been read."""

    def __init__(self, accepted: socket.socket, name: tuple[str, int]) -> None:
        self._name = name
        self.getsockname = accepted.getsockname
        self.getsockopt = accepted.getsockopt

    def getpeername(self) -> tuple[str, int]:
        return self._name


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_request_of_a_reset_peer_is_not_run(programs: Programs, loop: str) -> None:
    setup = Setup(programs, loop=loop)
    pause = "POST /v1/services/tasks/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    with bound() as own:
        setup.program.stop()
        as_user(ALICE, send_and_reset, setup.http, pause, own.getsockname()[1])
        connect_to(setup.http, own)
        setup.program.go_on()
        own.sendall(b"GET /v1/services/tasks HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert own.recv(65_536).startswith(b"HTTP/1.1 404 ")
    assert json.loads(response(setup.http, "/v1/services")[1])["services"] == []
