"""Python's own ProcessPoolExecutor: no broker, the workers are child processes of the client."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager

from bench.queues.echo import Calls, echo, sliding

PROCESSES = 2


@contextmanager
def calls(place: str) -> Iterator[Calls]:
    with ProcessPoolExecutor(PROCESSES) as pool:
        yield _Calls(pool)


class _Calls:
    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def one(self, payload: str) -> str:
        return self._submit(payload).result()

    def many(self, payloads: Iterator[str], window: int) -> Iterator[str]:
        return sliding(self._submit, Future.result, payloads, window)

    def _submit(self, payload: str) -> Future[str]:
        return self._pool.submit(echo, payload)
