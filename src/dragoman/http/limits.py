"""Limits of an HTTP listener (L6, L13 to L15, R125 to R127)."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Time-outs in seconds, sizes in bytes, and counts."""

    head_timeout: float = 10.0
    body_timeout: float = 120.0
    body_grace: float = 10.0  # time in which min_body_rate does not apply
    min_body_rate: int = 1024  # bytes a second, after body_grace
    idle_timeout: float = 15.0
    max_head: int = 16_384
    max_fields: int = 64
    max_target: int = 4096
    max_payload: int = 64 * MIB
    max_memory: int = 1024 * MIB  # all unfinished bodies together
    max_send_buffer: int = 32 * MIB  # or one message, if larger
    max_connections: int = 1024
    max_connections_per_remote_address: int = 128
    max_connections_per_local_address: int = 1024  # loopback, Unix sockets
    max_streams: int = 64
