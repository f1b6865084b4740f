"""Limits of one connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The most that one connection may cost us; options of its listener."""

    max_send_buffer: int = field(default=32 << 20, metadata={"min": 1})
    handshake_timeout: float = field(default=10.0, metadata={"min": 0.001})
    carrier_ping: float = field(default=5.0, metadata={"min": 0.001})  # D12: ask for a life sign after so much silence
    carrier_timeout: float = field(default=15.0, metadata={"min": 0.001})  # and give it up after so much

    def __post_init__(self) -> None:
        if self.carrier_ping >= self.carrier_timeout:
            raise ValueError(
                f"carrier_ping {self.carrier_ping:g} must be less than carrier_timeout {self.carrier_timeout:g}, "
                "or peers are given up before they are asked"
            )


DEFAULT_LIMITS: Final = ConnectionLimits()
