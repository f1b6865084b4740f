"""Dramatiq with Redis as its broker and for its results."""

import os
from contextlib import contextmanager

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from bench.queues.echo import PLACE, echo, in_halves

LIMIT = 20_000  # milliseconds

place = os.environ.get(PLACE)
broker = RedisBroker(url=place)
broker.add_middleware(Results(backend=RedisBackend(url=place)))
dramatiq.set_broker(broker)
actor = dramatiq.actor(echo, store_results=True, max_retries=0)


@contextmanager
def calls(place):
    yield _Calls()


class _Calls:
    def one(self, payload):
        return actor.send(payload).get_result(block=True, timeout=LIMIT)

    def many(self, payloads, window):
        return in_halves(_submit, lambda batch: batch.get_results(block=True, timeout=LIMIT), payloads, window)


def _submit(payloads):
    return dramatiq.group(actor.message(payload) for payload in payloads).run()
