"""The dial policy (R51, T6): endpoints of workers, and whether they are dialled."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from case_tables import check_every_row
from dragoman.sdk.address import MAX_UNIX_PATH_BYTES, TcpAddress, UnixAddress
from dragoman.server import dial_policy as reach_module
from dragoman.server.dial_policy import DialPolicy

PEER = "127.0.0.1"
FAR = "192.0.2.7"  # of another machine


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    folder.mkdir()
    return folder


@pytest.fixture
def listening(base: Path) -> Iterator[Path]:
    """A socket under the base, owned by this user."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(base / "w.ipc"))
        yield base / "w.ipc"


def refusal(reach: DialPolicy, endpoint: str, address: str = PEER) -> str:
    place, problem = reach(endpoint, address)
    assert place is None, f"{endpoint} is dialled: {place}"
    assert problem
    assert problem.isprintable()
    assert len(problem) < 500
    return problem


# -------------------------------------------------------------------- tcp


@pytest.mark.parametrize(
    ("endpoint", "place"),
    [
        ("tcp://127.0.0.1:9001", TcpAddress("127.0.0.1", 9001)),
        ("tcp://127.0.0.1:1024", TcpAddress("127.0.0.1", 1024)),
        ("tcp://127.0.0.1:65535", TcpAddress("127.0.0.1", 65535)),
        ("tcp://127.9.9.9:9001", TcpAddress("127.9.9.9", 9001)),
        ("tcp://[::1]:9001", TcpAddress("::1", 9001)),
        ("tcp://[0:0:0:0:0:0:0:1]:9001", TcpAddress("::1", 9001)),
        ("tcp://[::ffff:127.0.0.1]:9001", TcpAddress("127.0.0.1", 9001)),
        ("tcp://[::ffff:7f00:1]:9001", TcpAddress("127.0.0.1", 9001)),
        ("tcp://localhost:9001", TcpAddress("127.0.0.1", 9001)),
    ],
)
def test_loopback_is_dialled_for_workers_of_this_machine(endpoint: str, place: TcpAddress) -> None:
    for peer in (PEER, "::1", "uid 7"):
        assert DialPolicy([], [])(endpoint, peer) == (place, "")
    assert f"and the worker is at {FAR}" in refusal(DialPolicy([], []), endpoint, FAR)


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        ("tcp://192.0.2.7:9001", FAR),
        ("tcp://[::ffff:192.0.2.7]:9001", FAR),
        ("tcp://[2001:DB8:0::7]:9001", "2001:db8::7"),
    ],
)
def test_a_worker_of_another_machine_is_not_dialled_at_its_own_address(
    endpoint: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: a listener with CURVE sent jobs to it without encryption, to whoever listened there."""
    assert "jobs would leave this machine without encryption" in refusal(DialPolicy([], []), endpoint, address)
    assert DialPolicy([], [address])(endpoint, address) == (TcpAddress(address, 9001), "")
    monkeypatch.setattr(reach_module, "_is_here", lambda _: True)  # it is an address of this machine
    assert DialPolicy([], [])(endpoint, address) == (TcpAddress(address, 9001), "")
    refusal(DialPolicy([], []), endpoint, PEER)


def test_addresses_of_this_machine_are_known() -> None:
    assert [reach_module._is_here(each) for each in ("127.8.8.8", "::1", "uid 7", FAR, "2001:db8::7")] == [
        *(True, True, True),
        *(False, False),
    ]


def test_a_worker_of_another_machine_names_no_socket_of_this_one(base: Path, listening: Path) -> None:
    reach = DialPolicy([str(base)], [])
    assert reach(f"ipc://{listening}", PEER)[0] is not None
    assert "it is a file of this machine" in refusal(reach, f"ipc://{listening}", FAR)


NEVER = [
    # other transports of ZeroMQ
    "inproc://worker",
    "pgm://eth0;239.192.1.1:5555",
    "epgm://eth0;239.192.1.1:5555",
    "udp://127.0.0.1:9001",
    "ws://127.0.0.1:9001/",
    "wss://127.0.0.1:9001/",
    "tipc://{5560,0}",
    "vmci://1:9001",
    "norm://127.0.0.1:9001",
    "http://127.0.0.1:9001/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:9001",
    "TCP://127.0.0.1:9001",
    "IPC://w.ipc",
    "unix:///tmp/w.ipc",
    # not of the form
    "",
    "tcp",
    "tcp:",
    "tcp:/127.0.0.1:9001",
    "tcp://",
    "ipc://",
    "://",
    "://127.0.0.1:9001",
    "127.0.0.1:9001",
    "/tmp/w.ipc",
    " tcp://127.0.0.1:9001",
    "tcp ://127.0.0.1:9001",
    # control characters
    "tcp://127.0.0.1:9001\n",
    "tcp://127.0.0.1\0:9001",
    "tcp://127.0.0.1:9001\x1b[2J",
    "tcp://127.0.0.1:9001\x85",
    "tcp://127.0.0.1:9001\u202e",
    "ipc://w.ipc\0",
    "ipc://w\x7f.ipc",
    # ports
    "tcp://127.0.0.1",
    "tcp://127.0.0.1:",
    "tcp://127.0.0.1:0",
    "tcp://127.0.0.1:22",
    "tcp://127.0.0.1:80",
    "tcp://127.0.0.1:1023",
    "tcp://127.0.0.1:65536",
    "tcp://127.0.0.1:99999",
    "tcp://127.0.0.1:-9001",
    "tcp://127.0.0.1:+9001",
    "tcp://127.0.0.1: 9001",
    "tcp://127.0.0.1:9_001",
    "tcp://127.0.0.1:0x2329",
    "tcp://127.0.0.1:٩٠٠١",
    "tcp://127.0.0.1:²³²³",
    "tcp://127.0.0.1:000009001",
    "tcp://127.0.0.1:*",
    "tcp://127.0.0.1:9001/",
    "tcp://127.0.0.1:9001?x=1",
    "tcp://127.0.0.1:9001:::x",
    # everywhere, nowhere, elsewhere
    "tcp://*:9001",
    "tcp://0.0.0.0:9001",
    "tcp://0:9001",
    "tcp://[::]:9001",
    "tcp://:9001",
    "tcp://[]:9001",
    "tcp://255.255.255.255:9001",
    "tcp://224.0.0.1:9001",
    "tcp://169.254.169.254:9001",
    "tcp://10.0.0.1:9001",
    "tcp://192.0.2.8:9001",
    "tcp://[fe80::1]:9001",
    "tcp://[::ffff:10.0.0.1]:9001",
    "tcp://[::10.0.0.1]:9001",
    "tcp://[64:ff9b::7f00:1]:9001",
    "tcp://[2002:7f00:1::]:9001",
    # tricks with addresses
    "tcp://2130706433:9001",
    "tcp://0x7f000001:9001",
    "tcp://0x7f.0.0.1:9001",
    "tcp://017700000001:9001",
    "tcp://0177.0.0.1:9001",
    "tcp://127.0.0.01:9001",
    "tcp://127.1:9001",
    "tcp://127.0.0.1.:9001",
    "tcp://127.0.0.1.nip.io:9001",
    "tcp://127.0.0.1@10.0.0.1:9001",
    "tcp://user@127.0.0.1:9001",
    "tcp://127.0.0.1;10.0.0.1:9001",
    "tcp://eth0;127.0.0.1:9001",
    "tcp://127.0.0.1:9001;10.0.0.1:22",
    "tcp://127.0.0.1:22:9001",
    "tcp://127.0.0.1#:9001",
    "tcp://127。0。0。1:9001",
    "tcp://①②⑦.0.0.1:9001",
    "tcp://127.0.0.1/8:9001",
    "tcp://127.0.0.1%lo:9001",
    # names
    "tcp://worker:9001",
    "tcp://example.com:9001",
    "tcp://localhost.:9001",
    "tcp://localhost.localdomain:9001",
    "tcp://LOCALHOST:9001",
    "tcp://metadata.google.internal:9001",
    "tcp://" + "x" * 4000 + ":9001",
]


def test_it_is_never_dialled(tmp_path: Path) -> None:
    def check(endpoint: str) -> None:
        refusal(DialPolicy([str(tmp_path)], []), endpoint)

    check_every_row(check, [(endpoint,) for endpoint in NEVER])


def test_there_are_at_least_40_endpoint_strings() -> None:
    assert len(set(NEVER)) == len(NEVER) >= 40


def test_no_name_is_looked_up_when_a_worker_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reach = DialPolicy([], [])
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("a lookup would stop everybody else"))
    refusal(reach, "tcp://example.com:9001")
    refusal(reach, "tcp://127.1:9001")


def test_a_unix_peers_address_is_no_tcp_address() -> None:
    refusal(DialPolicy([], []), "tcp://uid 0:9001", "uid 0")
    refusal(DialPolicy([], []), "tcp://192.0.2.7:9001", "uid 0")


# -------------------------------------------------------------------- dial_allow


@pytest.mark.parametrize(
    ("allowed", "host"),
    [
        ("10.0.0.0/8", "10.1.2.3"),
        ("10.1.2.3", "10.1.2.3"),
        ("2001:db8::/32", "[2001:db8::5]"),
        ("10.0.0.0/8", "[::ffff:10.1.2.3]"),
        ("0.0.0.0/0", "198.51.100.1"),
    ],
)
def test_dial_allow_names_addresses_and_networks(allowed: str, host: str) -> None:
    place, _ = DialPolicy([], [allowed])(f"tcp://{host}:9001", PEER)
    assert isinstance(place, TcpAddress)
    refusal(DialPolicy([], []), f"tcp://{host}:9001")


def test_dial_allow_lets_in_nothing_beside_its_network_and_no_lower_port() -> None:
    reach = DialPolicy([], ["10.0.0.0/8", "2001:db8::/32"])
    for endpoint in ("tcp://11.0.0.1:9001", "tcp://[2001:db9::1]:9001", "tcp://10.0.0.1:1023", "tcp://[::a00:1]:9001"):
        refusal(reach, endpoint)


def test_a_name_in_dial_allow_is_looked_up_once_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def look_up(name: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        asked.append(name)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("198.51.100.9", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    reach = DialPolicy([], ["gpu-3"])
    for endpoint in ("tcp://gpu-3:9001", "tcp://198.51.100.9:9001"):
        assert reach(endpoint, PEER) == (TcpAddress("198.51.100.9", 9001), "")
    refusal(reach, "tcp://gpu-4:9001")
    refusal(reach, "tcp://gpu-3:22")
    assert asked == ["gpu-3"]


@pytest.mark.parametrize("allowed", ["no.such.host.invalid", "10.0.0.0/33", "a b", "x" * 300, "*"])
def test_what_is_neither_address_nor_network_nor_name_is_refused_at_the_start(
    allowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    with pytest.raises(ValueError, match="is not an IP address, a network or a known host name"):
        DialPolicy([], [allowed])


# -------------------------------------------------------------------- ipc


def test_a_socket_under_the_base_is_dialled_by_whole_and_by_relative_path(base: Path, listening: Path) -> None:
    reach = DialPolicy([str(base)], [])
    for endpoint in (f"ipc://{listening}", "ipc://w.ipc", "ipc://./w.ipc", f"ipc://{base}//w.ipc"):
        assert reach(endpoint, PEER) == (UnixAddress(str(listening)), "")


def test_a_relative_path_is_looked_for_in_every_base_in_turn(tmp_path: Path, base: Path, listening: Path) -> None:
    first = tmp_path / "first"
    first.mkdir()
    reach = DialPolicy([str(first), str(base)], [])
    assert reach("ipc://w.ipc", PEER) == (UnixAddress(str(listening)), "")
    (first / "w.ipc").write_text("not a socket")
    assert reach("ipc://w.ipc", PEER) == (UnixAddress(str(listening)), "")


def test_a_socket_that_is_not_there_yet_may_be_about_to_come(base: Path) -> None:
    reach = DialPolicy([str(base)], [])
    assert reach("ipc://soon.ipc", PEER) == (UnixAddress(str(base / "soon.ipc")), "")
    assert reach(f"ipc://{base}/sub/soon.ipc", PEER) == (UnixAddress(str(base / "sub" / "soon.ipc")), "")


def test_a_base_may_itself_be_a_link(tmp_path: Path, base: Path, listening: Path) -> None:
    (tmp_path / "link").symlink_to(base)
    reach = DialPolicy([str(tmp_path / "link")], [])
    assert reach("ipc://w.ipc", PEER) == (UnixAddress(str(listening)), "")
    assert reach(f"ipc://{tmp_path}/link/w.ipc", PEER) == (UnixAddress(str(listening)), "")


@pytest.mark.parametrize(
    "path",
    [
        "@abstract",
        "@",
        "..",
        "../w.ipc",
        "a/../../w.ipc",
        "a/../w.ipc",
        "/",
        "//",
        ".",
        "./",
        "/etc/passwd",
        "/run/docker.sock",
        "/var/run/dbus/system_bus_socket",
        "{base}",
        "{base}/",
        "{base}/.",
        "{base}/../w.ipc",
        "{base}x/w.ipc",
        "{outside}/w.ipc",
    ],
)
def test_what_does_not_lie_under_the_base_is_never_dialled(path: str, tmp_path: Path, base: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "basex").mkdir()
    refusal(DialPolicy([str(base)], []), "ipc://" + path.format(base=base, outside=outside))


def test_a_link_out_of_the_base_is_not_followed(tmp_path: Path, base: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(outside / "s"))
        (base / "link.ipc").symlink_to(outside / "s")
        (base / "folder").symlink_to(outside)
        (base / "dangling").symlink_to(outside / "soon")
        reach = DialPolicy([str(base)], [])
        for path in ("link.ipc", "folder/s", f"{base}/link.ipc", f"{base}/folder/s", "dangling"):
            assert refusal(reach, f"ipc://{path}").endswith(" (base=)")


def test_a_link_within_the_base_is_followed_to_the_file_itself(base: Path, listening: Path) -> None:
    (base / "link.ipc").symlink_to(listening)
    assert DialPolicy([str(base)], [])("ipc://link.ipc", PEER) == (UnixAddress(str(listening)), "")


def test_links_in_a_ring_are_no_socket(base: Path) -> None:
    (base / "a").symlink_to(base / "b")
    (base / "b").symlink_to(base / "a")
    refusal(DialPolicy([str(base)], []), "ipc://a")


def test_a_file_that_is_no_socket_is_not_dialled(base: Path) -> None:
    (base / "file").write_text("")
    (base / "folder").mkdir()
    os.mkfifo(base / "pipe")
    for name in ("file", "folder", "pipe"):
        assert refusal(DialPolicy([str(base)], []), f"ipc://{name}") == "it is not a socket"
    assert refusal(DialPolicy([str(base)], []), "ipc://file/w.ipc") == "Not a directory"


class Owned:
    """A socket that belongs to another user, as lstat reports it."""

    st_mode = stat.S_IFSOCK | 0o777

    def __init__(self, uid: int) -> None:
        self.st_uid = uid


@pytest.mark.parametrize(
    ("owner", "address", "is_dialled"),
    [
        (1000, "uid 2000", True),
        (2000, "uid 2000", True),
        (3000, "uid 2000", False),
        (0, "uid 2000", False),
        (2000, "127.0.0.1", False),
        (200, "uid 2000", False),
        (2000, "", False),
        (0, "uid 0", True),
    ],
)
def test_the_sockets_owner_must_be_us_or_the_worker(
    owner: int, address: str, is_dialled: bool, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach = DialPolicy([str(base)], [])
    monkeypatch.setattr(reach_module.os, "getuid", lambda: 1000)
    monkeypatch.setattr(reach_module.os.path, "realpath", os.path.abspath)
    monkeypatch.setattr(reach_module.os, "lstat", lambda path: Owned(owner))
    place, problem = reach(f"ipc://{base}/w.ipc", address)
    assert (place is not None) == is_dialled
    assert is_dialled or problem == f"it belongs to uid {owner}, which is neither the worker's nor the broker's"


def test_a_folder_that_we_may_not_look_into_is_a_reason(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    reach = DialPolicy([str(base)], [])
    monkeypatch.setattr(reach_module.os.path, "realpath", os.path.abspath)
    monkeypatch.setattr(reach_module.os, "lstat", forbidden)
    assert refusal(reach, "ipc://w.ipc") == "Permission denied"


def test_a_path_is_as_long_as_the_kernel_takes_and_no_longer(base: Path) -> None:
    reach = DialPolicy([str(base)], [])
    room = MAX_UNIX_PATH_BYTES - len(str(base)) - 1
    place, _ = reach("ipc://" + "x" * room, PEER)
    assert place == UnixAddress(f"{base}/{'x' * room}")
    assert "longer than 107 bytes" in refusal(reach, "ipc://" + "x" * (room + 1))
    assert "longer than 107 bytes" in refusal(reach, "ipc://" + "ö" * (room // 2 + 1))
    refusal(reach, "ipc://" + "x" * 4000)
    refusal(reach, "ipc://" + "x/" * 2000)


def test_without_a_base_no_ipc_is_dialled() -> None:
    refusal(DialPolicy([], []), "ipc://w.ipc")
    refusal(DialPolicy([], []), "ipc:///tmp/w.ipc")


def test_a_base_of_everything_is_the_operators_choice() -> None:
    assert DialPolicy(["/"], [])("ipc:///no/such/w.ipc", PEER) == (UnixAddress("/no/such/w.ipc"), "")
