"""Source of ids, tokens and jitter: passed in, and seeded in tests."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from dragoman.core.model import JobId, Token


@mypyc_attr(allow_interpreted_subclasses=True)
class Entropy:
    """Creates ids, tokens and jitter. A class and not a protocol: every job takes a token, and compiled code calls a
    class directly."""

    def job_id(self) -> JobId:
        raise NotImplementedError

    def token(self) -> Token:
        raise NotImplementedError

    def jitter(self) -> float:
        """Return a number between -1 and 1."""
        raise NotImplementedError
