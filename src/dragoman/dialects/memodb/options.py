"""Options of MemoDB URLs, with the defaults of the dialect's page. Times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.dialects.option_fields import attempts, count, seconds, time_limit


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    heartbeat_after: float = seconds(10.0)  # a worker's request gets a reply within this time
    heartbeat_timeout: float = seconds(10.0)  # the worker replies to HEARTBEAT within this time
    queue_timeout: float = time_limit(0.0)  # 0 = none: MemoDB has no message for a time-out
    attempts: int | None = attempts()
    detach_timeout: float = seconds(60.0)  # R64: a disconnected worker may come back within this time
    orphan_grace: float = time_limit(5.0)  # R64: the same for a caller whose job waits
    stuck_timeout: float = seconds(3600.0)  # wait for the result of a cancelled job
    keep_answers: float = time_limit(120.0)  # R63: for clients that repeat a request
    max_kept_bytes: int = count(64 << 20, least=0)  # R63: all kept replies together
    max_parked: int = count(100_000)  # R76: requests without a reply on all connections
    max_parked_per_peer: int = count(10_000)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    service: str = "default"
    heartbeat_after: float = seconds(10.0)  # expected of the broker


@dataclass(frozen=True, slots=True)
class ClientOptions:
    service: str = "default"
    job_timeout: float = time_limit(60.0)  # time limit of one attempt; 0 = no limit
