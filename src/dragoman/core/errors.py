"""InvariantBroken: our own fault. It has a module to itself because compiled code cannot inherit AssertionError."""

from __future__ import annotations


class InvariantBroken(AssertionError):
    """Our own fault: something that must always hold does not. The process stops."""
