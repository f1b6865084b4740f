"""A worker for tests: runs in a thread of the test, and so do its handlers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dragoman.sdk.worker import Worker

if TYPE_CHECKING:
    from dragoman.tasks.task import Task
    from dragoman.testing.local import LocalBroker

CLOSE_TIMEOUT = 10.0  # seconds


class WorkerThread:
    """A running worker with these tasks and functions. It has joined the broker."""

    def __init__(
        self,
        broker: LocalBroker,
        tasks: Iterable[ModuleType | Task[Any, Any]],
        functions: Mapping[str, Callable[..., Any]],
    ) -> None:
        self.worker = Worker(broker.url, threads=4)
        self.worker.include(*tasks)
        for name, function in functions.items():
            self.worker.service(name)(function)
        before = {name: broker.workers_of(name) for name in self.worker.services}
        self._thread = threading.Thread(target=self.worker.run, name="worker of a test")
        self._thread.start()
        for name, count in before.items():
            broker.wait_for_workers(count + 1, name)

    def close(self) -> None:
        self.worker.stop()
        self._thread.join(CLOSE_TIMEOUT)
        if self._thread.is_alive():
            self.worker.stop()  # at once: a handler still runs
            self._thread.join(CLOSE_TIMEOUT)
