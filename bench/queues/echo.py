"""The job that every system runs, and two ways to keep a window of running jobs. Imports no system."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Protocol

WHO = "who"
PLACE = "BENCH_PLACE"  # environment variable with the broker's address


class Calls(Protocol):
    """A system as its client program uses it."""

    def one(self, payload: str) -> str:
        """Run one job and wait for it."""

    def many(self, payloads: Iterator[str], window: int) -> Iterator[str]:
        """Yield the results of many jobs, in the order of their payloads, with at most `window` running jobs."""


def echo(payload: str) -> str:
    """Return the payload, or the process id if the payload asks for it."""
    return payload if payload != WHO else str(os.getpid())


def sliding(
    submit: Callable[[str], Any], result: Callable[[Any], str], payloads: Iterator[str], window: int
) -> Iterator[str]:
    """Submit the next job as soon as the oldest one has ended."""
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
    """Submit half a window at once while the other half runs, for systems in which batches are faster."""
    under_way: deque[Any] = deque()
    while batch := list(islice(payloads, window // 2)):
        under_way.append(submit(batch))
        if len(under_way) == 2:
            yield from results(under_way.popleft())
    while under_way:
        yield from results(under_way.popleft())
