"""How this process uses memory: two settings of the interpreter and the C library that the hot path feels."""

from __future__ import annotations

import ctypes
import gc

MIB = 1 << 20

# glibc's names for its own knobs.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3

YOUNG_OBJECTS = 50_000


def tune_process() -> None:
    keep_large_buffers()
    collect_rarely()


def keep_large_buffers() -> None:
    """Let freed payload buffers be used again instead of going back to the kernel.

    A fresh mapping for every 1 MiB job cost more in page faults than copying the job did. Up to 64 MiB of free memory
    stays with us. On a C library that has no such knob nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(M_MMAP_THRESHOLD, 32 * MIB)
    mallopt(M_TRIM_THRESHOLD, 64 * MIB)


def collect_rarely() -> None:
    """Jobs are made without reference cycles, so the collector has little to find and much to look at."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 100)
