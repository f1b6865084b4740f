"""What a PingPong URL may say, with the defaults of the dialect's page. Seconds everywhere."""

from __future__ import annotations

from dataclasses import dataclass, field

from dragoman.dialects.pingpong.editions import Edition


def seconds(default: float) -> float:
    return field(default=default, metadata={"min": 0.0})


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    service: str = "default"
    edition: Edition = Edition.PLAIN
    ping_every: float = field(default=1.0, metadata={"min": 0.001})  # what workers are expected to do
    worker_expire: float = field(default=3.0, metadata={"min": 0.001})
    job_timeout: float = seconds(600.0)  # 0 = none
    queue_timeout: float = seconds(60.0)
    attempts: int | None = field(default=None, metadata={"min": 1, "max": 100})
    adopt_on_ping: bool = True  # R30
    unproven_limit: float = seconds(3600.0)  # R36


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    service: str = "default"
    edition: Edition = Edition.PLAIN
    ping_every: float = field(default=1.0, metadata={"min": 0.001})
    broker_timeout: float = field(default=1.0, metadata={"min": 0.001})
    n_timeouts: int = field(default=3, metadata={"min": 1})
    # A broker that takes the document at its word gives a second job to a worker that pings at its first.
    ping_while_busy: bool = False


@dataclass(frozen=True, slots=True)
class ClientOptions:
    service: str = "default"
