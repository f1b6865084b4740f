"""Source of ids, tokens and jitter: passed in, and seeded in tests."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from dragoman.core.model import JobId, Token


def without_zeros(drawn: bytes) -> bytes:
    """Return random bytes without zero bytes. Clients and workers of other languages keep a token, or an id of a
    worker, as text that ends at the first zero byte, and return the beginning. 16 such bytes have 127.9 random bits.
    """
    return drawn.replace(b"\0", b"\1")


@mypyc_attr(allow_interpreted_subclasses=True)
class Entropy:
    """Creates ids, tokens and jitter. A class and not a protocol: every job takes a token, and compiled code calls a
    class directly."""

    def job_id(self) -> JobId:
        raise NotImplementedError

    def token(self) -> Token:
        """Return 16 random bytes, none of which is zero."""
        raise NotImplementedError

    def jitter(self) -> float:
        """Return a number between -1 and 1."""
        raise NotImplementedError
