"""Dragoman's client of a typed task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench.queues.echo import Calls
from bench.queues.our_tasks import elsewhere
from dragoman import Client, using


@contextmanager
def calls(place: str) -> Iterator[Calls]:
    with Client(place) as client, using(client):
        yield _Calls()


class _Calls:
    def __init__(self) -> None:
        self._echo = elsewhere.with_options(wait_for_worker=True)

    def one(self, payload: str) -> str:
        return self._echo.call(payload)

    def many(self, payloads: Iterator[str], window: int) -> Iterator[str]:
        return self._echo.with_options(window=window).map(payloads)
