"""Ends processes that lost their parent, and processes that a handler forked."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from contextlib import suppress

PR_SET_PDEATHSIG = 1
FORKED = (
    "dragoman: process %d was forked by a handler, continued with the worker's own code and was ended; "
    "end a forked process with os._exit, or start programs with subprocess\n"
)


def exit_with_parent() -> bool:
    """Let the kernel end this process with its parent: another worker may retry the jobs of a killed worker. Returns
    False if the kernel cannot: only Linux does."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError, TypeError):  # TypeError: of Windows
        return False
    return True


def exit_after_parent() -> None:
    """Let a thread end this process when the one that started it has ended (R264). Only for processes of
    multiprocessing."""
    import multiprocessing  # most users of this module need none of it

    parent = multiprocessing.parent_process()
    assert parent is not None, "not started by multiprocessing"

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, name="wait for the end of the worker", daemon=True).start()


def exit_if_forked(original: int) -> None:
    """End this process at once unless its pid is `original`. A process forked by a handler has copies of the worker's
    sockets and would send results for jobs that are not its own. Nothing is flushed: the original has the same buffers.
    """
    if os.getpid() != original:
        with suppress(OSError):
            os.write(2, (FORKED % os.getpid()).encode())
        os._exit(1)
