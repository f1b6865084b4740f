"""What a MemoDB URL may say, with the defaults of the dialect's page. Seconds everywhere."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.dialects.option_fields import attempts, count, seconds, time_limit


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    heartbeat_after: float = seconds(10.0)  # a worker's request is answered within this time
    heartbeat_timeout: float = seconds(10.0)  # and a HEARTBEAT answered by the worker within this
    queue_timeout: float = time_limit(0.0)  # 0 = none: this wire has no message for a time-out
    attempts: int | None = attempts()
    detach_timeout: float = seconds(60.0)  # R64: how long a worker whose connection is gone may take to come back
    orphan_grace: float = time_limit(5.0)  # R64: the same for a caller whose job waits
    stuck_timeout: float = seconds(3600.0)  # how long the result of a cancelled job is waited for
    keep_answers: float = time_limit(120.0)  # R63: for clients that ask again
    max_kept_bytes: int = count(64 << 20, least=0)  # R63: all of those together
    max_parked: int = count(100_000)  # R76: requests without an answer, all peers together
    max_parked_per_peer: int = count(10_000)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    service: str = "default"
    heartbeat_after: float = seconds(10.0)  # what the broker is expected to do


@dataclass(frozen=True, slots=True)
class ClientOptions:
    service: str = "default"
    job_timeout: float = time_limit(60.0)  # what the job is given once a worker has it; 0 = no limit
