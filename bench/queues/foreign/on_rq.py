"""RQ with SimpleWorker, whose workers run jobs in their own process, without a fork for each."""

from contextlib import contextmanager

import redis
import rq

from bench.queues.echo import echo, in_halves

LIMIT = 20


@contextmanager
def calls(place):
    yield _Calls(rq.Queue(connection=redis.Redis.from_url(place)))


class _Calls:
    def __init__(self, queue):
        self._queue = queue

    def one(self, payload):
        return _result(self._queue.enqueue(echo, payload, result_ttl=60))

    def many(self, payloads, window):
        return in_halves(self._submit, lambda jobs: map(_result, jobs), payloads, window)

    def _submit(self, payloads):
        return self._queue.enqueue_many([rq.Queue.prepare_data(echo, (each,), result_ttl=60) for each in payloads])


def _result(job):
    return job.latest_result(timeout=LIMIT).return_value
