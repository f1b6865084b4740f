"""Runs the command `dragoman` in processes that start with its modules loaded.

A new interpreter takes a quarter of a second of CPU time to load a broker, and the tests start more than a thousand
commands. Run as a program, this module loads the package once and then forks: each process is a command with the
folder, environment, files, session and command line that a shell would pass to it. `Starter` is the tests' side. It
starts a new interpreter for a command whose environment has variables that Python reads at its start.
"""

from __future__ import annotations

import atexit
import gc
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any, TextIO

DRAGOMAN = str(Path(sys.executable).with_name("dragoman"))
MOST_BYTES = 1 << 18  # size of a request: more than a socket accepts at once

Files = tuple[Path, Path, Path]  # standard input, output and error


class Process:
    """A process of the fork server: the part of `subprocess.Popen` that the tests use."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status  # pipe that carries the exit code

    def poll(self) -> int | None:
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(["dragoman"], timeout)
        return code

    def _look(self, patience: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], patience)[0]:
            written = os.read(self._status, 16)
            assert written, "the fork server has ended"
            self.returncode = int(written)
            os.close(self._status)
        return self.returncode


def start_anew(words: list[str], folder: Path, files: Files, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start any program."""
    with open(files[0], "rb") as given, open(files[1], "wb") as out, open(files[2], "wb") as err:
        return subprocess.Popen(
            words, stdin=given, stdout=out, stderr=err, cwd=folder, env=environment, start_new_session=True
        )


@cache
def starter() -> Starter:
    """Return the starter of all tests in this process."""
    return Starter()


class Starter:
    """Starts commands through a fork server, which ends with this process."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [sys.executable, __file__, str(theirs.fileno())]
            self._server = subprocess.Popen(words, pass_fds=[theirs.fileno()], start_new_session=True)
        ours.settimeout(60)
        self._socket = ours
        self._lock = threading.Lock()
        atexit.register(self.close)

    def close(self) -> None:
        self._socket.close()
        self._server.wait()

    def start(
        self, words: list[str], folder: Path, files: Files, environment: dict[str, str], user: int | None = None
    ) -> Process | subprocess.Popen[bytes]:
        """Start a command; `user` is its user id, if not that of the tests."""
        if user is None and _read_at_start(environment) != _read_at_start(os.environ | {"PYTHONUNBUFFERED": "1"}):
            return start_anew(words, folder, files, environment)
        request = {"words": words, "folder": str(folder), "environment": environment, "files": list(map(str, files))}
        request |= {"user": user}
        status, theirs = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._socket, [json.dumps(request).encode()], [theirs])
                return Process(int(self._socket.recv(16)), status)
        finally:
            os.close(theirs)


def _read_at_start(environment: Any) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


# -------------------------------------------------------------------- the fork server


def serve(requests: socket.socket) -> None:
    """Fork a command for each request, until the connection ends. Returns in a child only, as that command."""
    ends: dict[int, tuple[int, int]] = {}  # process and status pipe, by the descriptor that signals its exit
    ended: dict[int, int] = {}  # process by status pipe
    poller = select.poll()
    poller.register(requests, select.POLLIN)
    while True:
        for ready, _ in poller.poll():
            if ready in ends:
                pid, status = ends.pop(ready)
                poller.unregister(ready)
                os.close(ready)
                ended[status] = pid
                _report(pid, status)
                poller.register(status, 0)  # reports that the other end is closed
            elif ready in ended:
                poller.unregister(ready)
                os.close(ready)
                os.waitpid(ended.pop(ready), 0)
            else:
                said, passed, _, _ = socket.recv_fds(requests, MOST_BYTES, 1)
                if not said:
                    sys.exit()
                pid = os.fork()
                if pid == 0:
                    _become(json.loads(said))
                    requests.send(b"%d" % os.getpid())  # as soon as its group can be killed
                    for each in (requests.detach(), *passed, *ends, *(pipe for _, pipe in ends.values()), *ended):
                        os.close(each)
                    return
                end = os.pidfd_open(pid)
                ends[end] = (pid, passed[0])
                poller.register(end, select.POLLIN)


def _report(pid: int, status: int) -> None:
    """Send the exit code of a process. It stays a zombie until the code is read, as a child of the test would."""
    how = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert how is not None
    try:
        os.write(status, b"%d" % (how.si_status if how.si_code == os.CLD_EXITED else -how.si_status))
    except BrokenPipeError:
        pass


def _become(request: dict[str, Any]) -> None:
    """Set up this process as a new process would be."""
    os.setsid()
    os.chdir(request["folder"])
    for number, path in enumerate(request["files"]):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    given = io.BufferedReader(io.FileIO(0, closefd=False))
    sys.stdin = io.TextIOWrapper(given, sys.stdin.encoding, sys.stdin.errors, write_through=True)
    sys.stdout, sys.stderr = _unbuffered(1, sys.stdout), _unbuffered(2, sys.stderr)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    sys.argv = request["words"]
    sys.orig_argv[1:] = sys.argv
    sys.path[0] = str(Path(DRAGOMAN).parent)
    if request["user"] is not None:
        become_user(request["user"])


def become_user(uid: int) -> None:
    """Run as another user, of the group of the same number and no other."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _unbuffered(number: int, like: TextIO) -> TextIO:
    return io.TextIOWrapper(io.FileIO(number, "w", closefd=False), like.encoding, like.errors, write_through=True)


def _load_all() -> None:
    import pkgutil
    from importlib import import_module

    import dragoman
    from dragoman.sdk.process_pool import PRELOADED_MODULE

    sys.modules["rich"] = None  # type: ignore[assignment]  # as `dragoman serve` has it
    import_module("encodings.idna")  # another user may not be able to read the standard library
    for each in pkgutil.walk_packages(dragoman.__path__, "dragoman."):
        # The modules of a worker's own fork server change signal handlers.
        if each.name not in ("dragoman.__main__", *PRELOADED_MODULE) and not each.name.startswith("dragoman.testing."):
            import_module(each.name)


def _leave_memory(code: int) -> None:
    """End this process, as the last of all functions that the interpreter calls when it ends.

    The interpreter would free every object of every module next. That writes to most of the memory that is shared with
    the fork server: 40 ms of CPU time, while `dragoman --version` needs 12. Returns if there is more to end.
    """
    if threading.active_count() > 1:
        return
    gc.collect()  # calls finalizers of unreachable objects
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    os._exit(code)


if __name__ == "__main__":
    codes: list[int] = []
    atexit.register(lambda: codes and _leave_memory(codes[0]))  # registered first, called last
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _load_all()
    gc.collect()
    gc.freeze()  # child processes share this memory until a garbage collection writes to it
    serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        runpy.run_path(DRAGOMAN, run_name="__main__")
        codes.append(0)
    except SystemExit as end:
        if isinstance(end.code, int | None):
            codes.append(end.code or 0)
        raise
