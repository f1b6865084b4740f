"""Where ids, tokens and jitter come from: passed in, and seeded in tests."""

from __future__ import annotations

from typing import Protocol

from dragoman.core.model import JobId, Token


class Entropy(Protocol):
    def job_id(self) -> JobId: ...

    def token(self) -> Token: ...

    def jitter(self) -> float:
        """A number between -1 and 1."""
