"""InvariantBroken has a module to itself, because compiled code cannot inherit AssertionError."""

from __future__ import annotations


class InvariantBroken(AssertionError):
    """A bug in the broker: an invariant does not hold. The process stops."""


def broken(letter: str, message: str) -> InvariantBroken:
    """Return the error for the invariant with this letter in docs/rules.md."""
    return InvariantBroken(f"{letter}: {message}")
