"""Watches the source files of a program and restarts it when they change, for development."""

from __future__ import annotations

import asyncio
import os
import site
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable
from functools import cache
from types import TracebackType

POLL = 0.25  # seconds


class FileWatcher:
    """Watches the files of all loaded modules, except the standard library and installed packages."""

    def __init__(self, also: Iterable[str] = ()) -> None:
        self._extra_files = tuple(also)
        self._times = self._look()
        self.changed: list[str] = []  # files that have changed

    async def wait(self, callback: Callable[[], None]) -> None:
        """Wait until a file changes, then call back."""
        while not self.look():
            await asyncio.sleep(POLL)
        callback()

    def wait_here(self) -> None:
        while not self.look():
            time.sleep(POLL)

    def look(self) -> list[str]:
        """Return the changed files. Modules that were loaded since the last call are watched from now on."""
        now = self._look()
        self.changed = sorted(file for file, when in self._times.items() if now.get(file) != when)
        self._times = now | self._times
        return self.changed

    def _look(self) -> dict[str, int]:
        return {file: _changed_at(file) for file in {*project_files(), *self._extra_files}}


def project_files() -> set[str]:
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return {file for file in files if file is not None and is_of_project(file)}


def is_of_project(file: str) -> bool:
    return file.endswith(".py") and not os.path.abspath(file).startswith(_ignored_paths())


def files_in(behind: TracebackType | None, error: BaseException) -> set[str]:
    """Return the project's files in the traceback of an exception."""
    found = {error.filename} if isinstance(error, SyntaxError) and error.filename else set()
    while behind is not None:
        found.add(behind.tb_frame.f_code.co_filename)
        behind = behind.tb_next
    return {file for file in found if is_of_project(file)}


def write_no_bytecode() -> None:
    """Let this process and its children write no byte code. Python takes byte code for current if the file was changed
    again within the same second and kept its size."""
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def restart() -> None:
    """Replace this process by the same program with its current code. Does not return."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - our own command line


@cache  # called for every module, four times a second
def _ignored_paths() -> tuple[str, ...]:
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")]
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = (*paths, *site.getsitepackages(), site.getusersitepackages(), ours)
    return tuple(os.path.join(path, "") for path in found)


def _changed_at(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0
