"""Options of Majordomo URLs, with the defaults of the dialect's page. Times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.dialects.majordomo.editions import Edition
from dragoman.dialects.option_fields import attempts, count, seconds, time_limit


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    heartbeat: float = seconds(2.5)  # interval of heartbeats, in both directions
    liveness: int = count(3)  # heartbeats that an idle worker may miss
    job_timeout: float = time_limit(60.0)  # 0 = none
    queue_timeout: float = time_limit(0.0)  # 0 = none: Majordomo has no message for a time-out
    attempts: int | None = attempts()
    stuck_timeout: float = time_limit(3600.0)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    service: str = "default"
    edition: Edition = Edition.RFC7  # supported by nearly all brokers
    heartbeat: float = seconds(2.5)
    liveness: int = count(3)


@dataclass(frozen=True, slots=True)
class ClientOptions:
    service: str = "default"
    edition: Edition = Edition.RFC7
    reply_timeout: float = seconds(90.0)  # a client gets no message about a job that ended without a result
