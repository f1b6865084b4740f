"""Rules about the addresses that the broker dials at a worker's request (R51, T6).

A worker names its endpoint, and could name anything: another service of this machine, a host behind the firewall, a
file outside its folder. And the connection to it has neither encryption nor proof of identity. So only endpoints of
this machine are dialled, for workers of this machine: Unix sockets under certain folders, owned by this user or by the
worker, and TCP ports. Other addresses must be listed in `dial_allow`. Names are resolved at the start and never later,
because a lookup would block the event loop.

`OwnSockets` knows the sockets of this broker. It never dials itself: at its own listeners it would be its own user, who
has all rights, and a worker could submit jobs through it (T6).
"""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from collections.abc import Sequence
from weakref import WeakSet, WeakValueDictionary

from dragoman.sdk.address import MAX_PORT, MAX_UNIX_PATH_BYTES, SocketAddress, TcpAddress, UnixAddress
from dragoman.streams.sockets import unix_pid, which_file

PRIVILEGED = 1024
SELF_DIALLED = "this broker listens there, and never dials itself"
ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1"}
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class DialPolicy:
    """Decides whether an endpoint may be dialled."""

    def __init__(self, folders: Sequence[str], allowed: Sequence[str]) -> None:
        """Raises ValueError for an invalid address or an unknown host name."""
        self._folders = [os.path.realpath(folder) for folder in folders]
        self._allowed: list[Network] = []
        self._names: dict[str, str] = {"localhost": "127.0.0.1"}
        for each in allowed:
            try:
                self._allowed.append(ipaddress.ip_network(each, strict=False))
            except ValueError:
                self._names[each] = _look_up(each)
                self._allowed.append(ipaddress.ip_network(self._names[each]))

    def __call__(self, socket_name: str, address: str) -> tuple[SocketAddress | None, str]:
        """Return the address to dial, or the reason not to. `address` is the worker's: an IP address, or `uid N`."""
        scheme, separator, rest = socket_name.partition("://")
        if not separator or not rest or not socket_name.isprintable():
            return None, "it is not of the form ipc://PATH or tcp://HOST:PORT"
        if scheme == "ipc":
            if not _is_here(address):
                return None, f"it is a file of this machine, and the worker is at {address}"
            return self._unix(rest, address)
        if scheme == "tcp":
            return self._tcp(rest, address)
        return None, f"only ipc and tcp are dialled, not {scheme[:20]}"

    def _unix(self, path: str, address: str) -> tuple[SocketAddress | None, str]:
        if path.startswith("@") or ".." in path.split("/"):
            return None, "abstract sockets and '..' are not followed"
        problem = f"it is not in {' or '.join(self._folders)} (base=)"
        candidates = [path] if os.path.isabs(path) else [os.path.join(folder, path) for folder in self._folders]
        missing: SocketAddress | None = None
        for candidate in candidates:
            real = os.path.realpath(candidate)
            if not any(real.startswith(folder.rstrip("/") + "/") for folder in self._folders):
                continue
            if len(os.fsencode(real)) > MAX_UNIX_PATH_BYTES:
                problem = f"its path is longer than {MAX_UNIX_PATH_BYTES} bytes"
                continue
            try:
                found = os.lstat(real)
            except FileNotFoundError:
                missing = missing or UnixAddress(real)  # the worker may be about to listen
                continue
            except OSError as error:
                problem = error.strerror or str(error)
                continue
            if not stat.S_ISSOCK(found.st_mode):
                problem = "it is not a socket"
            elif found.st_uid != os.getuid() and f"uid {found.st_uid}" != address:
                problem = f"it belongs to uid {found.st_uid}, which is neither the worker's nor the broker's"
            else:
                return UnixAddress(real), ""
        return missing, "" if missing is not None else problem

    def _tcp(self, place: str, address: str) -> tuple[SocketAddress | None, str]:
        host, colon, port = place.rpartition(":")
        if not colon or not port.isascii() or not port.isdecimal() or len(port) > 5 or port.startswith("0"):
            return None, "it has no port"
        if not PRIVILEGED <= int(port) <= MAX_PORT:
            return None, f"ports below {PRIVILEGED} and above {MAX_PORT} are not dialled"
        host = host.removeprefix("[").removesuffix("]")
        try:
            ip = ipaddress.ip_address(self._names.get(host, host))
        except ValueError:
            return None, f"{host[:64]!r} is not an IP address, and not listed in dial_allow="
        if isinstance(ip, ipaddress.IPv6Address):
            ip = ip.ipv4_mapped or ip  # Python versions differ in the properties of ::ffff:127.0.0.1
        target = TcpAddress(str(ip), int(port))
        if any(ip in network for network in self._allowed):
            return target, ""
        if ip.is_loopback and not _is_here(address):
            return None, f"{ip} is this machine, and the worker is at {address}; list {ip} in dial_allow= to dial it"
        if ip.is_loopback or (str(ip) == address and _is_here(address)):
            return target, ""
        unsafe = "jobs would leave this machine without encryption"
        return None, f"{ip} is not an address of this machine, and not listed in dial_allow=: {unsafe}"


def _is_here(address: str) -> bool:
    """Tell if a worker is on this machine. `address`: an IP address, or `uid N` of a Unix socket."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return True
    if ip.is_loopback:
        return True
    with socket.socket(socket.AF_INET6 if ip.version == 6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))  # possible for addresses of this machine only; nothing is sent
        except OSError:
            return False
    return True


def _look_up(name: str) -> str:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ValueError(f"{name!r} is not an IP address, a network or a known host name") from None
    return str(found[0][4][0])


class OwnSockets:
    """The sockets of this broker: those on which it listens, and those that it dialled.

    A dial of itself is recognised three times, because an address has many spellings: by its address before it is
    dialled, by what the kernel says about the other end before a byte is sent, and at the listener, where it arrives
    even if rules of a firewall have changed its address on the way.
    """

    def __init__(self) -> None:
        self._listening: WeakSet[socket.socket] = WeakSet()
        self._dialling: WeakSet[socket.socket] = WeakSet()  # not connected yet
        self._dialled: WeakValueDictionary[tuple[str, int], socket.socket] = WeakValueDictionary()  # TCP, by own name

    def listens(self, listening: socket.socket) -> None:
        self._listening.add(listening)

    def dials(self, target: socket.socket) -> None:
        """Add a socket that is about to connect."""
        self._dialling.add(target)

    def connected(self, target: socket.socket) -> None:
        self._dialling.discard(target)
        if target.family != socket.AF_UNIX:
            self._dialled[_name(target.getsockname())] = target

    def listens_at(self, place: SocketAddress) -> bool:
        """Tell if this broker listens at an address, which is a path or has an IP address."""
        if isinstance(place, UnixAddress):
            try:
                found = os.stat(place.path)  # the same for a symbolic or hard link, and below another mount
            except OSError:
                return False
            return any(which_file(each) == (found.st_dev, found.st_ino) for each in self._paths())
        host = _plain(place.host)
        return self._listens_on(ANY_HOST.get(host, host), place.port)

    def is_own_listener(self, target: socket.socket) -> bool:
        """Tell if a connected socket has reached a listener of this broker."""
        try:
            if target.family == socket.AF_UNIX:
                # The kernel names the process that listens, and the path with which it did: no spelling of the dial.
                return unix_pid(target) == os.getpid() and target.getpeername() in self._paths()
            return self._listens_on(*_name(target.getpeername()))
        except OSError:  # it has ended
            return False

    def has_dialled(self, accepted: socket.socket) -> bool:
        """Tell if the other end of an accepted connection is a socket that this broker dialled."""
        if not (self._dialled or self._dialling) or accepted.family == socket.AF_UNIX:
            return False  # a Unix socket has no name; `is_own_listener` has found it
        try:
            name = _name(accepted.getpeername())
            found = self._dialled.get(name)
            if found is not None and found.fileno() >= 0:
                return True
            return any(_name(each.getsockname()) == name for each in self._dialling if _is_open_tcp(each))
        except OSError:
            return False

    def _paths(self) -> list[str]:
        sockets = [each for each in self._listening if each.fileno() >= 0 and each.family == socket.AF_UNIX]
        return [str(each.getsockname()) for each in sockets]

    def _listens_on(self, host: str, port: int) -> bool:
        for each in self._listening:
            if _is_open_tcp(each):
                own_host, own_port = _name(each.getsockname())
                if own_port == port and (own_host == host or (own_host in ANY_HOST and _is_here(host))):
                    return True
        return False


def _is_open_tcp(each: socket.socket) -> bool:
    return each.fileno() >= 0 and each.family != socket.AF_UNIX


def _name(name: tuple[str, int, int, int] | tuple[str, int]) -> tuple[str, int]:
    return _plain(name[0]), name[1]


def _plain(host: str) -> str:
    """Return an IP address in its shortest form: without a zone, and as IPv4 if it is mapped."""
    ip = ipaddress.ip_address(host.partition("%")[0])
    return str((ip.ipv4_mapped or ip) if isinstance(ip, ipaddress.IPv6Address) else ip)
