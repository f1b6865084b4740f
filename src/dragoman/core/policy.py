"""Limits and periods of the core."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIB: Final = 1 << 20
GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits and periods of the broker, in seconds and bytes. Listeners may set their own; these apply to all."""

    # Order of waiting jobs: one step of priority is worth this many seconds of waiting.
    priority_step: float = 60.0

    # R15: limits on jobs present, by number and by bytes.
    max_jobs: int = 1_000_000
    max_jobs_per_service: int = 1_000_000
    max_memory: int = GIB
    max_bytes_per_service: int = 0  # L24: payloads of jobs of one service; 0: no limit but max_memory

    # L8, L24: jobs of one caller that are present, waiting or running, by number and by bytes.
    max_jobs_per_caller: int = 200_000
    max_bytes_per_caller: int = 0  # 0: no limit but max_memory

    # R29: limits on names that come from outside.
    max_services: int = 10_000
    max_services_per_worker: int = 64
    max_services_per_caller: int = 1_000  # that no worker has offered
    max_service_bytes: int = 128
    max_key_bytes: int = 256
    max_error_bytes: int = 65_536

    # L17, L18: limits on a job's options.
    max_delay: float = 30 * 86_400.0
    max_attempts: int = 100

    # R190, R193: bytes of results that a job takes as its input; links between jobs that wait for others; groups.
    max_input: int = 64 * MIB
    max_links: int = 1_000_000
    max_links_per_batch: int = 100_000  # a batch is read and accepted in one turn of the loop
    max_groups: int = 100_000

    # R235, R236: clients whose requests are remembered, and free ids of requests; the time for which they are.
    max_remembered_requests: int = 100_000
    request_retention: float = 600.0

    # R10, R11: worker deaths and retry delays.
    max_worker_deaths: int = 3
    retry_first: float = 1.0
    retry_delay_after_loss: float = 0.1
    retry_cap: float = 60.0
    retry_jitter: float = 0.2

    # R8: dispatches that may fail unseen before the job is delayed, and that delay.
    max_undelivered: int = 10
    undelivered_delay: float = 0.1

    # R107: time for a worker to deliver a result of an attempt from before the broker restarted.
    worker_resume_timeout: float = 30.0

    # R110: outcomes deleted in one iteration.
    max_deletes_per_tick: int = 1_000

    # L20: limits on kept outcomes, by time and by bytes.
    outcome_retention: float = 86_400.0
    max_outcome_bytes: int = GIB
    max_kept_forever: int = 100_000  # jobs whose outcome is kept until it is deleted, ended or not
