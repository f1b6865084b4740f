"""Limits of the store."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Limits in seconds, bytes and counts."""

    # L21, R101: largest size of the file, and space reserved for outcomes on a full disk.
    max_store_size: int = 10 << 30
    ballast: int = 16 * MIB

    # L21, R110: sizes of the log. It is merged into the file when the store is idle, or at `busy_wal` bytes.
    max_wal: int = 64 * MIB
    busy_wal: int = 16 * MIB

    # Largest commit.
    max_group: int = 5_000
    max_group_bytes: int = 32 * MIB

    # Jobs that are restored at a time when the broker starts.
    load_batch: int = 1_000

    # R109: time for the check at the start before it is postponed, and the longest delay of deletes until it is done.
    check_budget: float = 1.0
    check_delay: float = 3_600.0

    # Seconds without a request after which postponed work is done.
    idle: float = 0.02

    # Seconds between checks for free space.
    retry: float = 1.0
