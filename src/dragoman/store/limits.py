"""Every number the diary obeys."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """In seconds, bytes and counts."""

    # L21, R101: how large the file may become, and what is kept back for outcomes when the disk is full.
    max_store_size: int = 10 << 30
    ballast: int = 16 * MIB

    # L21, R110: the log is carried over into the file when nobody waits for us, or when it has become so long.
    max_wal: int = 64 * MIB
    busy_wal: int = 16 * MIB

    # What one commit takes at most.
    max_group: int = 5_000
    max_group_bytes: int = 32 * MIB

    # Jobs that are brought at a time when the broker starts.
    load_batch: int = 1_000

    # R109: how long the check at the start may take before it is put off, and how long erasures wait for it then.
    check_budget: float = 1.0
    check_patience: float = 3_600.0

    # Nobody has wanted anything for so long: time for what can wait.
    idle: float = 0.02

    # How often we look whether there is room again.
    retry: float = 1.0
