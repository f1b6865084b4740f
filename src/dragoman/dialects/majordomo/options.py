"""What a Majordomo URL may say, with the defaults of the dialect's page. Seconds everywhere."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.dialects.majordomo.editions import Edition
from dragoman.dialects.option_fields import attempts, count, seconds, time_limit


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    heartbeat: float = seconds(2.5)  # how often every worker is told that we live, and expected to tell us
    liveness: int = count(3)  # an idle worker may miss so many
    job_timeout: float = time_limit(60.0)  # 0 = none
    queue_timeout: float = time_limit(0.0)  # 0 = none: this wire has no message for a time-out
    attempts: int | None = attempts()
    stuck_timeout: float = time_limit(3600.0)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    service: str = "default"
    edition: Edition = Edition.RFC7  # what nearly every broker out there speaks
    heartbeat: float = seconds(2.5)
    liveness: int = count(3)


@dataclass(frozen=True, slots=True)
class ClientOptions:
    service: str = "default"
    edition: Edition = Edition.RFC7
    reply_timeout: float = seconds(90.0)  # nobody tells a client that its request came to nothing
