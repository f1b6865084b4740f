"""Process tuning: the file descriptor limit, malloc thresholds and garbage collection."""

from __future__ import annotations

import ctypes
import gc
import sys

MIB = 1 << 20

# Parameter numbers of glibc's mallopt.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3

PR_SET_DUMPABLE = 4  # of prctl

YOUNG_OBJECTS = 50_000
SPARE_DESCRIPTORS = 512


def raise_descriptor_limit() -> int:
    """Raise the limit of file descriptors. Returns the number of connections that it allows (L7)."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    except (ValueError, OSError):
        pass
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(soft - SPARE_DESCRIPTORS, soft // 2)


def protect_secrets() -> None:
    """Write no core dump, and let no other process of this user read the memory: it has secret keys."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hide_memory()


def hide_memory() -> None:
    """Let no other process of this user read the memory, the first environment included. Only Linux can."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    except (OSError, AttributeError, TypeError):  # TypeError: of Windows
        return


def tune_process() -> None:
    keep_large_buffers()
    collect_rarely()


def keep_large_buffers() -> None:
    """Keep freed payload buffers in the process instead of returning them to the kernel.

    A fresh mapping for every 1 MiB job cost more in page faults than copying the job did. Up to 64 MiB of free memory
    stays in the process. Does nothing on a C library without mallopt.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(M_MMAP_THRESHOLD, 32 * MIB)
    mallopt(M_TRIM_THRESHOLD, 64 * MIB)


def collect_rarely() -> None:
    """Run the garbage collector rarely: jobs have no reference cycles, so it finds little and scans much."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 100)
