"""Payloads and results, as commands take and print them."""

from __future__ import annotations

import sys


def read_payload(data: str) -> bytes:
    """The bytes of an argument; those of standard input for `-`."""
    return sys.stdin.buffer.read() if data == "-" else data.encode("utf-8", "surrogateescape")


def print_result(result: bytes) -> None:
    """Prints a result as it came; on a terminal with a line break behind it."""
    sys.stdout.buffer.write(result)
    if sys.stdout.isatty() and not result.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
