"""Processes that must not go on alone: without their parent, or as a copy that a handler forked."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress

PR_SET_PDEATHSIG = 1
FORKED = (
    "dragoman: process %d was forked by a handler, went on with the worker's own work and was ended; "
    "end a forked process with os._exit, or start programs with subprocess\n"
)


def exit_with_parent() -> None:
    """Ask the kernel to end this process with its parent: what a killed worker was at, another may begin anew."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        pass


def exit_if_forked(original: int) -> None:
    """End this process at once unless it is `original`. What a handler forks has a copy of all that is ours: it would
    answer for jobs that are not its own. Nothing is flushed, for the original has the same buffers."""
    if os.getpid() != original:
        with suppress(OSError):
            os.write(2, (FORKED % os.getpid()).encode())
        os._exit(1)
