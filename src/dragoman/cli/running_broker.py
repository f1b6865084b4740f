"""The broker that runs with a data folder: found by the lock of the folder, and told by a signal."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path

from dragoman.access.reload_report import ReloadReport, read_report

PATIENCE = 5.0  # seconds to wait for its answer
LOCKS = Path("/proc/locks")


def broker_process(data: Path) -> int | None:
    """Return the process id of the broker with this data folder; None if none runs. Raises OSError if it cannot be
    found out.

    The id in the lock file may be of another namespace of process ids, in which case the kernel does not confirm it.
    """
    try:
        with open(data / "lock", "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                process = int(file.read(32).decode("ascii", "replace").strip() or 0)
                if not _holds(process, os.fstat(file.fileno()).st_ino):
                    raise OSError(0, f"the broker of {data} runs where its process id is not known") from None
                return process
    except FileNotFoundError:
        pass
    except ValueError:
        raise OSError(0, f"{data / 'lock'} has no process id") from None
    return None


def _holds(process: int, inode: int) -> bool:
    """True if the kernel says that this process holds a lock of this file."""
    for line in LOCKS.read_text().splitlines():
        words = line.split()  # 1: FLOCK ADVISORY WRITE 1234 08:01:5678 0 EOF
        if words[1:2] == ["FLOCK"] and words[4:5] == [str(process)] and words[5].endswith(f":{inode}"):
            return True
    return False


def reload_broker(data: Path, process: int) -> ReloadReport | None:
    """Have the broker read its access folder again. Returns its answer; None if there is none in time. Raises OSError
    if the signal cannot be sent."""
    before = read_report(data)
    os.kill(process, signal.SIGHUP)
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        report = read_report(data)
        if report is not None and report.process == process and report != before:
            return report
        time.sleep(0.01)
    return None
