"""Limits of one connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one connection; options of its listener."""

    max_send_buffer: int = field(default=32 << 20, metadata={"min": 1})
    handshake_timeout: float = field(default=10.0, metadata={"min": 0.001})
    carrier_ping: float = field(default=5.0, metadata={"min": 0.001})  # D12: seconds of silence before a PING
    carrier_timeout: float = field(default=15.0, metadata={"min": 0.001})  # seconds of silence before it is closed

    @property
    def stall_timeout(self) -> float:
        """Seconds in which a connection with too many unsent bytes must take some: less than until it is silent."""
        return self.carrier_timeout - self.carrier_ping

    def __post_init__(self) -> None:
        if self.carrier_ping >= self.carrier_timeout:
            raise ValueError(
                f"carrier_ping {self.carrier_ping:g} must be less than carrier_timeout {self.carrier_timeout:g}, "
                "or connections are closed before a PING is sent"
            )


DEFAULT_LIMITS: Final = ConnectionLimits()
