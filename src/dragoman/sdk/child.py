"""A warm child process that runs a function, one job at a time. A handler that dies or hangs the interpreter takes only
its own process with it; the parent, which keeps the heartbeats, lives on."""

from __future__ import annotations

import ctypes
import importlib
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

from dragoman.sdk.errors import JobFailed, JobLost

READY, BROKEN, DONE, RAISED = b"+", b"!", b"=", b"-"
START_TIMEOUT = 60.0
PR_SET_PDEATHSIG = 1


class CannotLoad(Exception):
    """The function to run cannot be had."""


class Child:
    """Parent's end. `run` blocks: call it from a thread."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._context = multiprocessing.get_context("spawn")
        self._process: Any = None
        self._connection: Connection | None = None

    def start(self) -> None:
        """Raises CannotLoad, with what the import said."""
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_main, args=(theirs, self._target, os.getcwd()), daemon=True)
        try:
            process.start()
        except OSError as error:
            ours.close()
            raise CannotLoad(f"no process can be started: {error.strerror or error}") from error
        finally:
            theirs.close()
        self._process = process
        self._connection = ours
        try:
            answer = ours.recv_bytes() if ours.poll(START_TIMEOUT) else BROKEN + b"it did not start within 60 s"
        except EOFError:
            answer = BROKEN + b"its process ended while the module was imported"
        if answer[:1] != READY:
            self._process.kill()
            self._bury()
            raise CannotLoad(answer[1:].decode("utf-8", "replace"))

    def run(self, payload: bytes | bytearray) -> bytes:
        """The function's result. Raises JobFailed, or JobLost if the child died; the next job gets a new one."""
        try:
            if self._process is not None and not self._process.is_alive():
                self._bury()  # it died between two jobs: this one has been seen by nobody
            if self._process is None:
                self.start()
            connection = self._connection
            assert connection is not None
            connection.send_bytes(payload)
            wait([connection, self._process.sentinel])
            answer = connection.recv_bytes()
        except CannotLoad as problem:
            raise JobFailed(f"the child process cannot be started again: {problem}") from None
        except (EOFError, OSError):
            code = self._bury()
            raise JobLost(f"the child process ended with exit code {code} while it worked") from None
        if answer[:1] == DONE:
            return answer[1:]
        raise JobFailed(answer[1:].decode("utf-8", "replace"))

    def _bury(self) -> int | None:
        process, self._process = self._process, None
        process.join()
        if self._connection is not None:
            self._connection.close()
        return process.exitcode  # type: ignore[no-any-return]

    def stop(self) -> None:
        """Kill it, whatever it does; `run` in another thread then raises JobLost."""
        if self._process is not None:
            self._process.kill()


def load(target: str) -> Callable[[bytes], object]:
    """The object behind MODULE:FUNCTION. Raises CannotLoad."""
    module_name, colon, name = target.partition(":")
    if not colon or not module_name or not name:
        raise CannotLoad(f"{target!r} is not of the form MODULE:FUNCTION, as in mypackage.images:resize")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.startswith(error.name):
            raise CannotLoad(
                f"there is no module {error.name!r} here (looked in {os.getcwd()} and sys.path)"
            ) from error
        raise CannotLoad(f"importing {module_name} failed:\n{traceback.format_exc()}") from error
    except Exception as error:
        raise CannotLoad(f"importing {module_name} failed:\n{traceback.format_exc()}") from error
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise CannotLoad(f"module {module_name} has no {name!r}") from None
    if not callable(found):
        raise CannotLoad(f"{target} is a {type(found).__name__}, not something to call")
    return found  # type: ignore[no-any-return]


def die_with_parent() -> None:
    """Ask the kernel to end this process with its parent: what a killed worker was at, another may begin anew."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        pass


def _main(connection: Connection, target: str, folder: str) -> None:
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for the parent
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        function = load(target)
    except CannotLoad as problem:
        connection.send_bytes(BROKEN + str(problem).encode("utf-8", "replace"))
        return
    connection.send_bytes(READY)
    while True:
        try:
            payload = connection.recv_bytes()
        except (EOFError, OSError):
            return  # the parent has gone
        try:
            answer = DONE + _as_bytes(function(payload))
        except Exception:
            answer = RAISED + traceback.format_exc().encode("utf-8", "replace")
        connection.send_bytes(answer)


def _as_bytes(result: object) -> bytes:
    if isinstance(result, bytes | bytearray | memoryview):
        return bytes(result)
    if isinstance(result, str):
        return result.encode()
    if result is None:
        return b""
    raise TypeError(f"a handler returns bytes (or str, or None), not {type(result).__name__}")
