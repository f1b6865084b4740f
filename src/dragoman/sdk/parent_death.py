"""Ends processes that lost their parent, and processes that a handler forked."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress

PR_SET_PDEATHSIG = 1
FORKED = (
    "dragoman: process %d was forked by a handler, continued with the worker's own code and was ended; "
    "end a forked process with os._exit, or start programs with subprocess\n"
)


def exit_with_parent() -> None:
    """Let the kernel end this process with its parent: another worker may retry the jobs of a killed worker."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        pass


def exit_if_forked(original: int) -> None:
    """End this process at once unless its pid is `original`. A process forked by a handler has copies of the worker's
    sockets and would send results for jobs that are not its own. Nothing is flushed: the original has the same buffers.
    """
    if os.getpid() != original:
        with suppress(OSError):
            os.write(2, (FORKED % os.getpid()).encode())
        os._exit(1)
