"""Generates ids, tokens and jitter from a seed, so that a run can be repeated."""

from __future__ import annotations

from random import Random

from dragoman.core.entropy import Entropy
from dragoman.core.model import JobId, Token


class SeededEntropy(Entropy):
    """Entropy from a seed: the same seed produces the same values in the same order."""

    def __init__(self, seed: int | str = 0) -> None:
        self._random = Random(seed)  # noqa: S311 - repeatable on purpose

    def job_id(self) -> JobId:
        return JobId(self._random.randbytes(16))

    def token(self) -> Token:
        return Token(self._random.randbytes(16).replace(b"\0", b"\1"))  # as `without_zeros`

    def jitter(self) -> float:
        return self._random.uniform(-1.0, 1.0)
