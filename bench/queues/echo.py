"""The job that every system does, and two ways to keep a window of jobs under way. Nothing here imports a system."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Protocol

WHO = "who"
PLACE = "BENCH_PLACE"  # the environment tells workers where their broker is


class Calls(Protocol):
    """A system as its client program uses it."""

    def one(self, payload: str) -> str:
        """One job, waited for."""

    def many(self, payloads: Iterator[str], window: int) -> Iterator[str]:
        """The results of many, in the order of their payloads, with at most `window` jobs under way."""


def echo(payload: str) -> str:
    """The payload; who asks for it learns which process did it."""
    return payload if payload != WHO else str(os.getpid())


def sliding(
    submit: Callable[[str], Any], result: Callable[[Any], str], payloads: Iterator[str], window: int
) -> Iterator[str]:
    """As soon as the oldest job has ended, the next is submitted."""
    under_way: deque[Any] = deque()
    for payload in payloads:
        under_way.append(submit(payload))
        if len(under_way) >= window:
            yield result(under_way.popleft())
    while under_way:
        yield result(under_way.popleft())


def in_halves(
    submit: Callable[[list[str]], Any], results: Callable[[Any], Iterable[str]], payloads: Iterator[str], window: int
) -> Iterator[str]:
    """Half a window is submitted at once while the other half is under way: where batches are faster."""
    under_way: deque[Any] = deque()
    while batch := list(islice(payloads, window // 2)):
        under_way.append(submit(batch))
        if len(under_way) == 2:
            yield from results(under_way.popleft())
    while under_way:
        yield from results(under_way.popleft())
