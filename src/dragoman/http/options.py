"""Options of an HTTP address, for listeners, workers and clients. Seconds everywhere."""

from __future__ import annotations

from dataclasses import dataclass, fields

from dragoman.dialects.option_fields import attempts, count, seconds, time_limit
from dragoman.http.limits import HttpLimits

# Options of a listener's URL that clients and workers ignore.
IGNORED = ("insecure", *(each.name for each in fields(HttpLimits)))


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    job_timeout: float = time_limit(60.0)  # 0 = none
    queue_timeout: float = time_limit(0.0)  # 0 = none
    attempts: int | None = attempts()
    lease: float = seconds(60.0, least=1.0)  # of a worker that does not ask for another
    max_lease: float = seconds(3600.0, least=1.0)
    long_poll: float = seconds(30.0, least=0.0, most=600.0)  # how long `next` may take
    max_workers: int = count(10_000, least=0)
    hosts: str = ""  # names besides loopback's by which requests may call us, with commas between them (T12)
    stuck_timeout: float = time_limit(3600.0)

    def __post_init__(self) -> None:
        if self.lease > self.max_lease:
            raise ValueError(f"lease {self.lease:g} is more than max_lease {self.max_lease:g}")


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    service: str = "default"
    lease: float = seconds(15.0, least=1.0)  # after so many silent seconds the broker takes it for dead


@dataclass(frozen=True, slots=True)
class ClientOptions:
    service: str = "default"
