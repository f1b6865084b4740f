"""Celery with Redis as its broker and for its results."""

import os
from contextlib import contextmanager

from celery import Celery, group

from bench.queues.echo import PLACE, echo, in_halves

LIMIT = 20

app = Celery("bench", broker=os.environ.get(PLACE), backend=os.environ.get(PLACE))
app.conf.update(
    worker_prefetch_multiplier=64,
    worker_enable_remote_control=False,
    worker_send_task_events=False,
    worker_hijack_root_logger=False,
    task_ignore_result=False,
    result_expires=60,
)
task = app.task(echo, name="echo")


@contextmanager
def calls(place):
    yield _Calls()


class _Calls:
    def one(self, payload):
        return task.delay(payload).get(timeout=LIMIT)

    def many(self, payloads, window):
        return in_halves(_submit, lambda batch: batch.get(timeout=LIMIT), payloads, window)


def _submit(payloads):
    return group(task.s(payload) for payload in payloads).apply_async()
