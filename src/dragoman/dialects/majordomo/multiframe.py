"""Bodies of several frames. Not in `messages.py`, because compiled code cannot inherit from bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from dragoman.carriers.carrier import Frame


class MultiframeBody(bytes):
    """A body of several frames: other dialects see their joined bytes, Majordomo's clients and workers the frames."""

    sizes: tuple[int, ...]

    @classmethod
    def of(cls, frames: Sequence[Frame]) -> MultiframeBody:
        framed = cls(b"".join(frames))
        framed.sizes = tuple(map(len, frames))
        return framed

    @property
    def frames(self) -> list[Frame]:
        return [self[start:end] for start, end in pairwise(accumulate(self.sizes, initial=0))]
