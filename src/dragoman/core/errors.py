"""InvariantBroken has a module to itself, because compiled code cannot inherit AssertionError."""

from __future__ import annotations


class InvariantBroken(AssertionError):
    """A bug in the broker: an invariant does not hold. The process stops."""
