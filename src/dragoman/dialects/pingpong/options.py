"""Options of PingPong URLs, with the defaults of the dialect's page. Times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.dialects.option_fields import attempts, count, seconds, time_limit
from dragoman.dialects.pingpong.editions import Edition


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    service: str = "default"
    edition: Edition = Edition.PLAIN
    ping_every: float = seconds(1.0)  # expected of workers
    worker_expire: float = seconds(3.0)
    job_timeout: float = time_limit(600.0)  # 0 = none
    queue_timeout: float = time_limit(60.0)
    attempts: int | None = attempts()
    adopt_on_ping: bool = True  # R30
    stuck_timeout: float = time_limit(3600.0)  # R36


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    service: str = "default"
    edition: Edition = Edition.PLAIN
    ping_every: float = seconds(1.0)
    broker_timeout: float = seconds(1.0)
    n_timeouts: int = count(3)
    # A broker that follows the document literally gives a second job to a worker that pings during its first.
    ping_while_busy: bool = False


@dataclass(frozen=True, slots=True)
class ClientOptions:
    service: str = "default"
