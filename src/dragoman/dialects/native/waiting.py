"""Parameters of a connection before WELCOME, and the error without it."""

from __future__ import annotations

from typing import Final

from dragoman.dialects.native.messages import Welcome

BEFORE_WELCOME: Final = Welcome(heartbeat=2.5, lease=5.0, max_payload=0)  # until WELCOME
NO_WELCOME: Final = (
    f"no WELCOME came within {BEFORE_WELCOME.lease:g} s of connecting: this port seems to speak another dialect. "
    "Use the native port of the broker (7400 by default), or name the dialect in the address, "
    "such as pingpong+tcp://HOST:PORT"
)
