"""Bodies of several frames. Apart from the words, because compiled code cannot inherit bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from dragoman.carriers.carrier import Frame


class MultiframeBody(bytes):
    """A body of several frames: to everybody else their bytes in a row, to Majordomo's own peers still frames."""

    sizes: tuple[int, ...]

    @classmethod
    def of(cls, frames: Sequence[Frame]) -> MultiframeBody:
        framed = cls(b"".join(frames))
        framed.sizes = tuple(map(len, frames))
        return framed

    @property
    def frames(self) -> list[Frame]:
        return [self[start:end] for start, end in pairwise(accumulate(self.sizes, initial=0))]
