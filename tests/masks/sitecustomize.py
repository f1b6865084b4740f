"""Hides packages, or parts of the system, from a Python process that has this folder on its PYTHONPATH.

`HIDDEN` in the environment names what:

- `extras`: the packages of Dragoman's extras
- `system`: what Windows lacks, and with it nearly all that macOS lacks
- `system-of-clients`: the same, but a `LocalBroker` in this process has it all
- `system-of-tests`, with one of these two: the tests lack it, too
- `macos`: what macOS lacks

The standard library needs parts of the system itself, so these are hidden from modules of `dragoman` and of the tests
alone: an import there gets a module's double, which has the rest of it.
"""

from __future__ import annotations

import asyncio
import builtins
import ctypes
import importlib.abc
import multiprocessing
import os
import select
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import reduction
from types import ModuleType
from typing import Any, NoReturn

EXTRAS = {"anyio", "apsw", "cbor2", "django", "h11", "httptools", "nacl", "opentelemetry", "sentry_sdk", "starlette"}
EXTRAS |= {"structlog", "tzdata", "uvicorn", "uvloop"}
TESTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
BROKER_SIDE = {"server", "http", "store", "dashboard", "cluster", "transfer", "recording", "demo", "powerhose"}
MODULES = {"fcntl", "termios", "tty", "pty", "pwd", "grp", "resource", "syslog", "readline", "uvloop"}
# Names that Windows or macOS does not have, by their modules.
NAMES = {
    "os": """chown fchmod fchown lchown mkfifo mknod statvfs fstatvfs sync fdatasync pread pwrite preadv pwritev readv
        writev sendfile posix_fallocate posix_fadvise copy_file_range splice memfd_create eventfd getrandom set_blocking
        get_blocking pipe2 O_CLOEXEC O_NOFOLLOW O_DIRECTORY O_NONBLOCK O_PATH O_SYNC O_DSYNC O_NOATIME
        fork forkpty register_at_fork setsid getsid setpgid getpgid getpgrp setpgrp killpg tcgetpgrp tcsetpgrp ttyname
        geteuid getuid getegid getgid getgroups initgroups setuid setgid seteuid setegid getresuid getpriority nice
        wait wait3 wait4 waitid WNOHANG WEXITED WNOWAIT P_PID P_ALL pidfd_open sched_getaffinity sched_setaffinity
        getloadavg uname sysconf confstr posix_spawn posix_spawnp chroot ctermid""",
    "signal": """SIGHUP SIGUSR1 SIGUSR2 SIGKILL SIGCHLD SIGCLD SIGPIPE SIGALRM SIGQUIT SIGSTOP SIGCONT SIGTSTP SIGTTIN
        SIGTTOU SIGWINCH SIGIO SIGPOLL SIGPWR SIGURG SIGXCPU SIGXFSZ SIGVTALRM SIGPROF SIGTRAP SIGBUS SIGSYS SIG_BLOCK
        SIG_UNBLOCK SIG_SETMASK Sigmasks pthread_sigmask pthread_kill sigwait sigwaitinfo sigtimedwait sigpending alarm
        setitimer getitimer pause siginterrupt pidfd_send_signal""",
    "socket": """AF_UNIX AF_NETLINK AF_PACKET SO_PEERCRED SO_PEERSEC SO_REUSEPORT SO_PASSCRED SOCK_CLOEXEC SOCK_NONBLOCK
        TCP_INFO TCP_USER_TIMEOUT TCP_CORK TCP_QUICKACK MSG_NOSIGNAL MSG_DONTWAIT SCM_RIGHTS SCM_CREDENTIALS CMSG_LEN
        CMSG_SPACE send_fds recv_fds sethostname""",
    "time": """CLOCK_BOOTTIME CLOCK_MONOTONIC CLOCK_REALTIME CLOCK_TAI clock_gettime clock_gettime_ns clock_settime
        clock_getres pthread_getcpuclockid tzset""",
    "select": "poll epoll kqueue POLLIN POLLOUT POLLERR POLLHUP EPOLLIN EPOLLOUT",
}
NAMES_OF_MACOS = {
    "os": """fdatasync posix_fallocate posix_fadvise copy_file_range splice memfd_create eventfd getrandom pipe2 O_PATH
        O_NOATIME pidfd_open sched_getaffinity sched_setaffinity getresuid""",
    "signal": "SIGCLD SIGPWR SIGPOLL sigwaitinfo sigtimedwait pidfd_send_signal",
    "socket": """AF_NETLINK AF_PACKET SO_PEERCRED SO_PEERSEC SO_PASSCRED SOCK_CLOEXEC SOCK_NONBLOCK TCP_INFO
        TCP_USER_TIMEOUT TCP_CORK TCP_QUICKACK MSG_NOSIGNAL SCM_CREDENTIALS""",
    "time": "CLOCK_BOOTTIME CLOCK_TAI",
    "select": "epoll EPOLLIN EPOLLOUT",
}
# Functions of `os` that take the descriptor of a folder on some systems, and the names of those arguments.
IN_FOLDERS = ("open", "mkdir", "unlink", "remove", "rmdir", "rename", "replace", "link", "symlink", "stat", "lstat")
IN_FOLDERS += ("chmod", "access", "readlink", "utime")
FOLDER_ARGUMENTS = ("dir_fd", "src_dir_fd", "dst_dir_fd")


class Missing(importlib.abc.MetaPathFinder):
    """Finds none of these packages, as if they were not installed."""

    def __init__(self, packages: set[str]) -> None:
        self._packages = packages

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        package = fullname.partition(".")[0]
        if package in self._packages:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)


class Double(ModuleType):
    """A module without some of its names, and with others replaced. All else is that of the module, at any time."""

    __slots__ = ("_hidden", "_instead", "_real")

    def __init__(self, real: ModuleType, hidden: set[str], instead: Mapping[str, object]) -> None:
        super().__init__(real.__name__)
        object.__setattr__(self, "_real", real)
        object.__setattr__(self, "_hidden", hidden)
        object.__setattr__(self, "_instead", instead)

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__
        if name == "__dict__":
            return {each: value for each, value in vars(own(self, "_real")).items() if each not in own(self, "_hidden")}
        if name in own(self, "_hidden"):
            raise AttributeError(f"module {own(self, '_real').__name__!r} has no attribute {name!r}", name=name)
        instead = own(self, "_instead")
        return instead[name] if name in instead else getattr(own(self, "_real"), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(object.__getattribute__(self, "_real"), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(object.__getattribute__(self, "_real"), name)


class ProactorEventLoop(asyncio.SelectorEventLoop):
    """As the default loop of Windows: it watches no sockets, and handles no signals."""

    add_reader = remove_reader = asyncio.AbstractEventLoop.add_reader  # raises NotImplementedError
    add_writer = remove_writer = asyncio.AbstractEventLoop.add_writer
    add_signal_handler = asyncio.AbstractEventLoop.add_signal_handler


class WindowsSelectorEventLoop(asyncio.SelectorEventLoop):
    """As the other loop of Windows: it watches nothing but sockets, handles no signals, and starts no programs."""

    add_signal_handler = asyncio.AbstractEventLoop.add_signal_handler  # raises NotImplementedError
    subprocess_exec = asyncio.AbstractEventLoop.subprocess_exec
    subprocess_shell = asyncio.AbstractEventLoop.subprocess_shell

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:
        check_socket(fd)
        super().add_reader(fd, callback, *args)

    def add_writer(self, fd: Any, callback: Any, *args: Any) -> None:
        check_socket(fd)
        super().add_writer(fd, callback, *args)


def check_socket(fd: Any) -> None:
    number = fd if isinstance(fd, int) else fd.fileno()
    if not stat.S_ISSOCK(os.fstat(number).st_mode):
        raise OSError(10038, "an operation was attempted on something that is not a socket")


class Absent:
    """A method that a class does not have, though its base does."""

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError


class WindowsSocket(socket.socket):
    """A socket that writes one buffer at a time."""

    sendmsg = recvmsg = recvmsg_into = Absent()  # type: ignore[assignment]


def socketpair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets, of TCP."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = WindowsSocket(socket.AF_INET, socket.SOCK_STREAM)
        ours.connect(listening.getsockname())
        theirs, _ = listening.accept()
    return ours, WindowsSocket(theirs.family, theirs.type, fileno=theirs.detach())


def without_folders(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of `os` on a system where a folder has no descriptor."""

    def called(path: Any, *args: Any, **named: Any) -> Any:
        if any(named.pop(each, None) is not None for each in FOLDER_ARGUMENTS):
            raise NotImplementedError("dir_fd unavailable on this platform")
        if isinstance(path, int) and function is not os.stat:
            raise TypeError("path should be string, bytes or os.PathLike, not int")
        if function is os.open and os.path.isdir(path):
            raise PermissionError(13, "Permission denied", path)
        return function(path, *args, **named)

    return called


class LibraryOfMacos(ctypes.CDLL):
    """The C library without a function of Linux."""

    def __getattr__(self, name: str) -> Any:
        if name in ("prctl", "mallopt"):
            raise AttributeError(f"dlsym(RTLD_DEFAULT, {name}): symbol not found")
        return super().__getattr__(name)


def open_nothing_of_proc(path: Any, *args: Any, **named: Any) -> Any:
    """`os.open` on a system without /proc."""
    if str(path).startswith("/proc"):
        raise FileNotFoundError(2, "No such file or directory", path)
    return os.open(path, *args, **named)


def cdll(name: str | None, *args: Any, **named: Any) -> ctypes.CDLL:
    if name is None:
        raise TypeError("bad argument type for built-in operation")
    return ctypes.CDLL(name, *args, **named)


def get_context(method: str | None = None) -> Any:
    if method not in (None, "spawn"):
        raise ValueError(f"cannot find context for {method!r}")
    return multiprocessing.get_context("spawn")


def hide_system_of_macos() -> None:
    hide(
        NAMES_OF_MACOS,
        {sys: {"platform": "darwin"}, ctypes: {"CDLL": LibraryOfMacos}, os: {"open": open_nothing_of_proc}}
        | {signal: {}, socket: {}, time: {}, select: {}},
        modules=set(),
        seen_by=set(),
    )


def hide_system(seen_by: set[str]) -> None:
    reduce_socket = reduction._reduce_socket  # type: ignore[attr-defined]
    reduction.register(WindowsSocket, reduce_socket)
    instead: dict[ModuleType, dict[str, object]] = {
        os: {each: without_folders(getattr(os, each)) for each in IN_FOLDERS}
        | {"listdir": without_folders(os.listdir), "supports_dir_fd": set(), "supports_fd": {os.stat}, "name": "nt"},
        signal: {"SIGBREAK": signal.SIGQUIT},
        socket: {"socket": WindowsSocket, "socketpair": socketpair},
        sys: {"platform": "win32"},
        time: {},
        select: {},
        ctypes: {"CDLL": cdll},
        asyncio: {
            "new_event_loop": ProactorEventLoop,
            "ProactorEventLoop": ProactorEventLoop,
            "SelectorEventLoop": WindowsSelectorEventLoop,
        },
        multiprocessing: {"get_context": get_context, "get_all_start_methods": lambda: ["spawn"]},
    }
    hide(NAMES, instead, MODULES, seen_by)


def hide(
    names: dict[str, str], instead: dict[ModuleType, dict[str, object]], modules: set[str], seen_by: set[str]
) -> None:
    """Give modules of `dragoman`, except of the packages in `seen_by`, doubles of the modules in `instead` from now on,
    and none of `modules`."""
    doubles = {
        real.__name__: Double(real, set(names.get(real.__name__, "").split()), replaced)
        for real, replaced in instead.items()
    }
    import_really = builtins.__import__
    hides_from_tests = "system-of-tests" in hidden

    def import_here(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        importer = globals or {}
        package, _, rest = str(importer.get("__name__")).partition(".")
        if package == "dragoman":
            is_masked = not level and rest.partition(".")[0] not in seen_by
        else:
            is_masked = hides_from_tests and str(importer.get("__file__")).startswith(TESTS)
        if is_masked and name.partition(".")[0] in modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        found = import_really(name, globals, locals, fromlist, level)
        return doubles.get(found.__name__, found) if is_masked else found

    builtins.__import__ = import_here


hidden = os.environ.get("HIDDEN", "").split()
if "extras" in hidden:
    sys.meta_path.insert(0, Missing(EXTRAS))
if "system" in hidden:
    hide_system(set())
if "macos" in hidden:
    hide_system_of_macos()
if "system-of-clients" in hidden:
    hide_system(BROKER_SIDE)
