"""Every number the core obeys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIB: Final = 1 << 20
GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Policy:
    """The broker's limits and periods, in seconds and bytes. A listener may set its own terms; these bind them all."""

    # How waiting jobs are ordered: one step of priority is worth so many seconds of waiting.
    priority_step: float = 60.0

    # R15: what may wait, in count and in bytes.
    max_jobs: int = 1_000_000
    max_jobs_per_service: int = 1_000_000
    max_memory: int = GIB

    # L8: what one caller may have present, waiting or running.
    max_jobs_per_caller: int = 200_000

    # R29: names that peers bring are bounded.
    max_services: int = 10_000
    max_services_per_worker: int = 64
    max_services_per_caller: int = 1_000  # that no worker has offered
    max_service_bytes: int = 128
    max_key_bytes: int = 256
    max_error_bytes: int = 65_536

    # L17, L18: what a job may ask for.
    max_delay: float = 30 * 86_400.0
    max_attempts: int = 100

    # R10, R11: spacing of attempts.
    max_worker_deaths: int = 3
    retry_first: float = 1.0
    retry_delay_after_loss: float = 0.1
    retry_cap: float = 60.0
    retry_jitter: float = 0.2

    # R8: so many hand-outs may fail unseen before the job rests a moment.
    max_undelivered: int = 10
    undelivered_delay: float = 0.1

    # R107: how long a worker may take to deliver what it was given before the broker was started anew.
    worker_resume_timeout: float = 30.0

    # R110: so many outcomes are erased in one go.
    max_deletes_per_tick: int = 1_000

    # L20: outcomes kept for those who come back, by time and by bytes.
    outcome_retention: float = 86_400.0
    max_outcome_bytes: int = GIB
