"""Options of native URLs, with the defaults of the dialect's page. Times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.dialects.option_fields import attempts, count, seconds, time_limit


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    heartbeat: float = seconds(2.5)
    lease: float = seconds(10.0)
    job_timeout: float = time_limit(60.0)  # 0 = none
    queue_timeout: float = time_limit(0.0)  # 0 = none
    attempts: int | None = attempts()
    window: int = count(1000, most=1_000_000)
    client_resume_timeout: float = time_limit(30.0)
    max_kept_bytes: int = count(16 << 20, least=0)
    max_sessions: int = count(10_000, least=0)
    stuck_timeout: float = time_limit(3600.0)

    def __post_init__(self) -> None:
        if self.heartbeat >= self.lease:
            raise ValueError(
                f"heartbeat {self.heartbeat:g} must be less than lease {self.lease:g}, "
                "or every worker would count as dead between two heartbeats"
            )


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    service: str = "default"
    prefetch: int = count(0, least=0, most=1000)


@dataclass(frozen=True, slots=True)
class ClientOptions:
    service: str = "default"
    window: int = count(256, most=1_000_000)
    resume: bool = True
