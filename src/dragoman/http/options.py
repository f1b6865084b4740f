"""What an HTTP listener's URL may say about callers and workers. Seconds everywhere."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    job_timeout: float = field(default=60.0, metadata={"min": 0.0})  # 0 = none
    queue_timeout: float = field(default=0.0, metadata={"min": 0.0})  # 0 = none
    attempts: int | None = field(default=None, metadata={"min": 1, "max": 100})
    lease: float = field(default=60.0, metadata={"min": 1.0})  # of a worker that does not ask for another
    max_lease: float = field(default=3600.0, metadata={"min": 1.0})
    long_poll: float = field(default=30.0, metadata={"min": 0.0, "max": 600.0})  # how long `next` may take
    max_workers: int = field(default=10_000, metadata={"min": 0})
    hosts: str = ""  # names besides loopback's by which requests may call us, with commas between them (T12)
    unproven_limit: float = field(default=3600.0, metadata={"min": 0.0})

    def __post_init__(self) -> None:
        if self.lease > self.max_lease:
            raise ValueError(f"lease {self.lease:g} is more than max_lease {self.max_lease:g}")
