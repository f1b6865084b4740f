"""Options of HTTP URLs, for listeners, workers and clients. Times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum

from dragoman.dialects.option_fields import attempts, count, seconds, time_limit
from dragoman.http.limits import HttpLimits

# Options of a listener's URL that clients and workers ignore.
IGNORED = ("insecure", "loopback", "auth", "dashboard", "payloads", *(each.name for each in fields(HttpLimits)))


class DashboardMode(Enum):
    """Dashboard of a listener. `READ`: it shows, and the listener rejects operations that change something."""

    ON = "on"
    READ = "read"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    job_timeout: float = time_limit(60.0)  # 0 = none
    queue_timeout: float = time_limit(0.0)  # 0 = none
    attempts: int | None = attempts()
    lease: float = seconds(60.0, least=1.0)  # of workers that request none
    max_lease: float = seconds(3600.0, least=1.0)
    long_poll: float = seconds(30.0, least=0.0, most=600.0)  # maximum wait of `next`
    max_workers: int = count(10_000, least=0)
    hosts: str = ""  # allowed names in Host besides loopback's, separated by commas (T12)
    stuck_timeout: float = time_limit(3600.0)
    hsts: int = count(0, least=0)  # Strict-Transport-Security, in seconds; 0: not sent
    dashboard: DashboardMode = DashboardMode.ON
    payloads: bool = True  # False: views of jobs have sizes only

    def __post_init__(self) -> None:
        if self.lease > self.max_lease:
            raise ValueError(f"lease {self.lease:g} must be at most max_lease {self.max_lease:g}")


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    service: str = "default"
    lease: float = seconds(15.0, least=1.0)  # seconds of silence after which the broker counts it as dead


@dataclass(frozen=True, slots=True)
class ClientOptions:
    service: str = "default"
