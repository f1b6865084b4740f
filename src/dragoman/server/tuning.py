"""What this process asks of its system: descriptors, and two settings of memory that the hot path feels."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys

MIB = 1 << 20

# glibc's names for its own knobs.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3

YOUNG_OBJECTS = 50_000
SPARE_DESCRIPTORS = 512


def raise_descriptor_limit() -> int:
    """Ask for as many descriptors as we may have. Returns how many peers that allows, with some to spare (L7)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    except (ValueError, OSError):
        pass
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(soft - SPARE_DESCRIPTORS, soft // 2)


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
