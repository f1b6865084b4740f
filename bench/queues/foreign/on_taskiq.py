"""taskiq with a list in Redis as its queue and Redis for its results, on uvloop."""

import asyncio
import os
from contextlib import contextmanager

import uvloop
from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend

from bench.queues.echo import PLACE, echo, in_halves

LIMIT = 20
ASK_AGAIN = 0.001  # polling interval of a single call; the default of 0.2 s would be its latency
ASK_AGAIN_FOR_MANY = 0.05

place = os.environ.get(PLACE, "redis://127.0.0.1")
broker = ListQueueBroker(place).with_result_backend(RedisAsyncResultBackend(place, result_ex_time=60))


@broker.task
async def task(payload: str) -> str:
    return echo(payload)


@contextmanager
def calls(place):
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(broker.startup())
    try:
        yield _Calls(loop)
    finally:
        loop.run_until_complete(broker.shutdown())


class _Calls:
    def __init__(self, loop):
        self._loop = loop

    def one(self, payload):
        return self._loop.run_until_complete(_call(payload, ASK_AGAIN))

    def many(self, payloads, window):
        return in_halves(self._submit, self._results, payloads, window)

    def _submit(self, payloads):
        return asyncio.gather(*(_call(payload, ASK_AGAIN_FOR_MANY) for payload in payloads))

    def _results(self, batch):
        return self._loop.run_until_complete(batch)


async def _call(payload, ask_again):
    waiting = await task.kiq(payload)
    return (await waiting.wait_result(check_interval=ask_again, timeout=LIMIT)).return_value
