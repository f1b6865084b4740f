"""Clients that enqueue background jobs while brokers die: each job is repeated until it is acknowledged, with one
key."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.client import HTTPException

from survivor import Survivor

from dragoman import BrokerUnavailable, Client

PATIENCE = 60.0  # for one job, over as many brokers as it takes
REST = 0.02  # before the same is said again
ORDER = {"attempts": 50, "retry_first": 0.05, "retry_cap": 0.2}  # nobody shall run out of attempts by our kills


class Submitters:
    """Enqueue this many jobs for `work`, every other one over HTTP, from several threads. `ids` has the acknowledged
    jobs."""

    def __init__(self, setup: Survivor, count: int, threads: int = 12) -> None:
        self.ids: dict[int, str] = {}  # by the job's number, which is its payload
        self.repeats = 0  # submits whose answer did not come
        self._setup = setup
        self._client = Client(setup.native, connect_timeout=PATIENCE)
        self._troubles: list[str] = []
        self._threads = [
            threading.Thread(target=self._work, args=(way, range(first, count, 2 * threads)), daemon=True)
            for first in range(2 * threads)
            for way in (self._by_http if first % 2 else self._by_client,)
        ]
        for thread in self._threads:
            thread.start()

    def are_done(self) -> bool:
        assert not self._troubles, self._troubles
        return not any(thread.is_alive() for thread in self._threads)

    def close(self) -> None:
        self._client.close()

    def _work(self, way: Callable[[range], None], numbers: range) -> None:
        try:
            way(numbers)
        except Exception as error:
            self._troubles.append(repr(error))

    def _by_client(self, numbers: range) -> None:
        """Enqueue through the client, which repeats unanswered requests by itself."""
        for number in numbers:
            try:
                self.ids[number] = self._client.enqueue("tasks", b"%d" % number, **ORDER)  # type: ignore[arg-type]
            except BrokerUnavailable as error:
                raise AssertionError(f"job {number} was not enqueued: {error}") from error

    def _by_http(self, numbers: range) -> None:
        listener = self._setup.listener()
        for number in numbers:
            order = {"service": "tasks", "payload": str(number), "key": f"job {number}", **ORDER}
            body = json.dumps(order).encode()
            deadline = time.monotonic() + PATIENCE
            while number not in self.ids:
                assert time.monotonic() < deadline, f"job {number} is not acknowledged"
                try:
                    status, _, said = listener.ask("POST", "/v1/jobs", body, Content_Type="application/json")
                except (OSError, HTTPException):
                    listener.close()  # the next request opens it anew
                    self.repeats += 1
                    time.sleep(REST)
                    continue
                if status in (200, 202):
                    view = json.loads(said)
                    assert status == (200 if view["state"] == "ended" else 202), view
                    self.ids[number] = view["id"]
                else:
                    assert status == 503, (status, said)  # it reads its store
                    time.sleep(REST)
        listener.close()
