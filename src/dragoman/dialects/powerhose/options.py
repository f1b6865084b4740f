"""What a Powerhose URL may say, with the defaults of the dialect's page. Seconds everywhere."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.dialects.option_fields import attempts, count, seconds, time_limit


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    service: str = "default"
    worker_expire: float = seconds(15.0)
    wake_timeout: float = seconds(1.0)
    job_timeout: float = time_limit(60.0)  # 0 = none
    queue_timeout: float = seconds(10.0)
    attempts: int | None = attempts()
    base: str = ""  # folders, with a colon between them, under which ipc endpoints may lie
    dial_allow: str = ""  # addresses and networks, with a comma between them, that may be dialled besides our own
    stuck_timeout: float = seconds(3600.0)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    service: str = "default"
    endpoint: str = ""  # where we listen for work; empty: a place of our own choice
    ping_every: float = seconds(5.0)
    ping_attempts: int = count(10)


@dataclass(frozen=True, slots=True)
class ClientOptions:
    service: str = "default"
