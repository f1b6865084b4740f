"""Dragoman's client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench.queues.echo import Calls
from dragoman import Client


@contextmanager
def calls(place: str) -> Iterator[Calls]:
    with Client(place) as client:
        yield _Calls(client)


class _Calls:
    def __init__(self, client: Client) -> None:
        self._client = client

    def one(self, payload: str) -> str:
        result: bytes = self._client.call("echo", payload, wait_for_worker=True)
        return result.decode()

    def many(self, payloads: Iterator[str], window: int) -> Iterator[str]:
        return map(bytes.decode, self._client.map("echo", payloads, window=window))
