"""Limits of connections, from the settings and from the operating system."""

from __future__ import annotations

from dragoman.server.admission import AdmissionLimits
from dragoman.server.config import Config
from dragoman.server.tuning import raise_descriptor_limit


def admission_limits(config: Config) -> AdmissionLimits:
    return AdmissionLimits(
        max_connections=min(config.max_connections, raise_descriptor_limit()),
        max_connections_per_local_address=config.max_connections_per_local_address,
        max_connections_per_remote_address=config.max_connections_per_remote_address,
        max_accepts_per_second=config.max_accepts_per_second,
        max_handshakes=config.max_handshakes,
        max_unauthenticated=config.max_unauthenticated,
    )
