"""Sockets: listen, remove stale socket files, describe the remote side."""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from typing import Final

# Seconds, and milliseconds for the last. Set where the system has them: macOS has neither the first nor the last.
TCP_OPTIONS = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 20_000}
BACKLOG = 1024
SO_PEERGROUPS = 59  # Linux 4.13 and newer; Python has no name for it
MAX_GROUPS = 1024
CREDENTIALS = struct.Struct("=iII")  # ucred of Linux: process, user and group
# macOS: the level of its options, their numbers (Python names only some of them), and xucred: version, user, number of
# groups, and the groups.
SOL_LOCAL = 0
LOCAL_PEERCRED = 1
LOCAL_PEERPID = 2
XUCRED = struct.Struct("=IIhxx16I")
AF_UNIX: Final = getattr(socket, "AF_UNIX", None)  # Windows has none


class AddressInUse(OSError):
    """Another program listens on this address."""


def listen_tcp(host: str, port: int) -> socket.socket:
    family, _, _, _, address = _resolve(host, port)
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(error.errno, f"{host}:{port} is taken: another program listens there") from error
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
    listening.setblocking(False)
    return listening


def unix_socket() -> socket.socket:
    """Return a new Unix socket. Raises OSError if the system has none."""
    if AF_UNIX is None:
        raise OSError(errno.EAFNOSUPPORT, "this system has no Unix sockets; use TCP")
    return socket.socket(AF_UNIX, socket.SOCK_STREAM)


def listen_unix(path: str, mode: int = 0o600, group: int | None = None) -> socket.socket:
    """Listen on a socket file. Removes the file of a dead process; AddressInUse if a process listens."""
    _clean_stale(path)
    listening = unix_socket()
    try:
        os.fchmod(listening.fileno(), 0o600)  # the file gets this mode; a umask would apply to all threads
        listening.bind(path)
        if mode != 0o600 or group is not None:
            _share(path, mode, group)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(error.errno, f"{path} is taken: another program listens there") from error
        raise OSError(error.errno, f"cannot listen on {path}: {error.strerror}") from error
    listening.setblocking(False)
    return listening


def _share(path: str, mode: int, group: int | None) -> None:
    """Set mode and group of a new socket file, and not those of a file that has replaced it."""
    handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(handle).st_mode):
            raise OSError(errno.EEXIST, "another file has replaced the socket")
        if group is not None:
            os.chown(f"/proc/self/fd/{handle}", -1, group)
        os.chmod(f"/proc/self/fd/{handle}", mode)
    except PermissionError as error:
        os.unlink(path)
        raise OSError(error.errno, f"group {group} is not one of the broker's groups; add the broker to it") from None
    finally:
        os.close(handle)


def which_file(path: str) -> tuple[int, int] | None:
    """Return the device and inode of a file, to recognise it later, or None."""
    try:
        there = os.lstat(path)
    except OSError:
        return None
    return there.st_dev, there.st_ino


def forget_unix(path: str, ours: tuple[int, int] | None) -> None:
    """Remove a socket file, unless another file has replaced it.

    Call it before the listening socket is closed: until then the kernel does not reuse the inode.
    """
    if ours is not None and which_file(path) == ours:
        os.unlink(path)


def _clean_stale(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {path}: {error.strerror}") from error
    if not stat.S_ISSOCK(mode):
        raise AddressInUse(errno.EEXIST, f"{path} exists and is not a socket: choose another path or remove it")
    probe = unix_socket()
    probe.settimeout(1.0)
    try:
        probe.connect(path)
    except ConnectionRefusedError:
        os.unlink(path)  # no process listens any more
    except FileNotFoundError:
        pass
    except OSError as error:
        raise AddressInUse(errno.EADDRINUSE, f"{path} is taken, or cannot be checked: {error}") from error
    else:
        raise AddressInUse(errno.EADDRINUSE, f"{path} is taken: another program listens there")
    finally:
        probe.close()


def tcp_target(host: str, port: int) -> tuple[socket.socket, tuple[object, ...]]:
    family, _, _, _, address = _resolve(host, port)
    return socket.socket(family, socket.SOCK_STREAM), address


def tune(connected: socket.socket) -> None:
    """Set the options of a connection: no Nagle delay, and detection of half-open TCP connections (R21)."""
    connected.setblocking(False)
    if connected.family == AF_UNIX:
        return
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in TCP_OPTIONS.items():
        if hasattr(socket, option):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def describe(connected: socket.socket) -> tuple[str, str, int]:
    """Return the name of the remote side for logs, its address for limits, and its process id.

    The process id is 0 if the kernel does not know it: over TCP, or for a process outside this pid namespace.
    """
    try:
        name = connected.getpeername()
    except OSError:
        return "?", "?", 0
    if isinstance(name, tuple):
        host, port = name[0], name[1]
        return (f"[{host}]:{port}" if ":" in host else f"{host}:{port}"), host, 0
    pid, uid, _ = _credentials(connected)
    return f"pid {pid}", f"uid {uid}", pid


def is_local(connected: socket.socket) -> bool:
    """Tell if the remote side is on this machine."""
    if connected.family == AF_UNIX:
        return True
    host = str(connected.getpeername()[0])
    return host == "::1" or host.startswith(("127.", "::ffff:127."))


def has_received_all(connected: socket.socket) -> bool:
    """Tell if everything sent has been received: over TCP by the remote machine, over a Unix socket by the program.

    Closing a socket with unread bytes resets the connection, so an error means no. The order of the checks matters: the
    kernel sets the error of a Unix socket before it drops the bytes.
    """
    try:
        queued = queued_bytes(connected)
    except OSError:
        return False
    return not queued and not connected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def queued_bytes(connected: socket.socket) -> int:
    """Return the number of sent bytes that have not been received. Raises OSError if the system does not tell."""
    try:
        import fcntl
        import termios
    except ModuleNotFoundError:  # Windows
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP)) from None
    found: int = struct.unpack("i", fcntl.ioctl(connected, termios.TIOCOUTQ, bytes(4)))[0]
    return found


def unix_uid(connected: socket.socket) -> int:
    """Return the user id of the process that connected to a Unix socket."""
    return _credentials(connected)[1]


def unix_pid(connected: socket.socket) -> int:
    """Return the id of the process at the other end of a Unix socket: the one that listened, or that connected."""
    return _credentials(connected)[0]


def unix_gids(connected: socket.socket) -> tuple[int, ...]:
    """Return the group ids of the process that connected to a Unix socket, its own one first."""
    first = _credentials(connected)[2]
    if not hasattr(socket, "SO_PEERCRED"):
        _, _, count, *groups = _xucred(connected)
        return tuple(groups[:count])
    try:
        packed = connected.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, MAX_GROUPS * 4)
    except OSError:  # more groups than the kernel returns here, or an old kernel
        return (first,)
    others = struct.unpack(f"{len(packed) // 4}I", packed)
    return (first, *(each for each in others if each != first))


def _credentials(connected: socket.socket) -> tuple[int, int, int]:
    """Return process, user and group of the other end of a Unix socket. Raises OSError if the system does not tell."""
    if hasattr(socket, "SO_PEERCRED"):
        packed = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        pid, uid, gid = CREDENTIALS.unpack(packed)
        return pid, uid, gid
    _, uid, _, gid, *_ = _xucred(connected)
    return connected.getsockopt(SOL_LOCAL, LOCAL_PEERPID), uid, gid


def _xucred(connected: socket.socket) -> tuple[int, ...]:
    return XUCRED.unpack(connected.getsockopt(SOL_LOCAL, LOCAL_PEERCRED, XUCRED.size))


def _resolve(host: str, port: int) -> tuple[int, int, int, str, tuple[object, ...]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:  # UnicodeError: a label that is not a valid host name
        problem = getattr(error, "strerror", None) or error
        raise OSError(getattr(error, "errno", None) or 0, f"cannot resolve {host!r}: {problem}") from error
    return found[0]
