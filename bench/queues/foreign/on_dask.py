"""Dask distributed: a scheduler and two workers of one thread each, in separate processes."""

from contextlib import contextmanager

from distributed import Client

from bench.queues.echo import echo, in_halves


@contextmanager
def calls(place):
    with Client(place) as client:
        yield _Calls(client)


class _Calls:
    def __init__(self, client):
        self._client = client

    def one(self, payload):
        return self._client.submit(echo, payload, pure=False).result()

    def many(self, payloads, window):
        return in_halves(self._submit, self._client.gather, payloads, window)

    def _submit(self, payloads):
        return self._client.map(echo, payloads, pure=False)
