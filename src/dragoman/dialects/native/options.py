"""What a native URL may say, with the defaults of the dialect's page. Seconds everywhere."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    heartbeat: float = field(default=2.5, metadata={"min": 0.001})
    lease: float = field(default=10.0, metadata={"min": 0.001})
    job_timeout: float = field(default=60.0, metadata={"min": 0.0})  # 0 = none
    queue_timeout: float = field(default=0.0, metadata={"min": 0.0})  # 0 = none
    attempts: int | None = field(default=None, metadata={"min": 1, "max": 100})
    window: int = field(default=1000, metadata={"min": 1, "max": 1_000_000})
    resume: float = field(default=30.0, metadata={"min": 0.0})
    max_kept_bytes: int = field(default=16 << 20, metadata={"min": 0})
    max_sessions: int = field(default=10_000, metadata={"min": 0})
    unproven_limit: float = field(default=3600.0, metadata={"min": 0.0})

    def __post_init__(self) -> None:
        if self.heartbeat >= self.lease:
            raise ValueError(
                f"heartbeat {self.heartbeat:g} must be less than lease {self.lease:g}, "
                "or every worker is taken for dead between two of its signs"
            )


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    service: str = "default"
    prefetch: int = field(default=0, metadata={"min": 0, "max": 1000})


@dataclass(frozen=True, slots=True)
class ClientOptions:
    service: str = "default"
    window: int = field(default=256, metadata={"min": 1, "max": 1_000_000})
    resume: bool = True
