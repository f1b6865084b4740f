"""Payloads and results: read from an argument or standard input, written to standard output."""

from __future__ import annotations

import sys


def read_payload(data: str) -> bytes:
    """The bytes of an argument; for `-`, those of standard input."""
    return sys.stdin.buffer.read() if data == "-" else data.encode("utf-8", "surrogateescape")


def print_bytes(payload: bytes) -> None:
    """Print a payload or a result as it is; on a terminal with a line break behind it."""
    sys.stdout.buffer.write(payload)
    if sys.stdout.isatty() and not payload.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
