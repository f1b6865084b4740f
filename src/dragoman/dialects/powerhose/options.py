"""Options of Powerhose URLs, with the defaults of the dialect's page. Times are in seconds."""

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
    base: str = ""  # folders that ipc endpoints may be in, separated by colons
    dial_allow: str = ""  # addresses and networks that may be dialled besides the broker's own, separated by commas
    stuck_timeout: float = seconds(3600.0)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    service: str = "default"
    endpoint: str = ""  # the worker's listening address; empty: chosen by the worker
    ping_every: float = seconds(5.0)
    ping_attempts: int = count(10)


@dataclass(frozen=True, slots=True)
class ClientOptions:
    service: str = "default"
