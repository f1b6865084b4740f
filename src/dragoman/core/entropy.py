"""Source of ids, tokens and jitter: passed in, and seeded in tests."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from dragoman.core.model import JobId, Token


@mypyc_attr(allow_interpreted_subclasses=True)
class Entropy:
    """A class and not a protocol: every job draws a token, and compiled code calls a class directly."""

    def job_id(self) -> JobId:
        raise NotImplementedError

    def token(self) -> Token:
        raise NotImplementedError

    def jitter(self) -> float:
        """A number between -1 and 1."""
        raise NotImplementedError
