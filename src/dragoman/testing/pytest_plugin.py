"""Pytest fixtures for programs that use Dragoman. Pytest loads them when Dragoman is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

    from dragoman.sdk.client import Client
    from dragoman.sdk.worker import Worker
    from dragoman.tasks.task import Task
    from dragoman.testing.local import LocalBroker

    StartWorker = Callable[..., Worker]


@pytest.fixture
def dragoman_broker() -> Iterator[LocalBroker]:
    """A broker for one test; clients and workers connect to `dragoman_broker.url`."""
    from dragoman.testing.local import LocalBroker

    with LocalBroker() as broker:
        yield broker


@pytest.fixture
def dragoman_client(dragoman_broker: LocalBroker) -> Iterator[Client]:
    """A client of `dragoman_broker`."""
    with dragoman_broker.client() as client:
        yield client


@pytest.fixture
def dragoman_worker(dragoman_broker: LocalBroker, dragoman_client: Client) -> Iterator[StartWorker]:
    """Starts a worker of `dragoman_broker`, in a thread: `dragoman_worker(module, task, name=function)`. Tasks use
    `dragoman_client` for the rest of the test, also those that a task of the worker calls."""
    from dragoman.tasks.clients import using_everywhere
    from dragoman.testing.workers import WorkerThread

    started: list[WorkerThread] = []

    def start(*tasks: ModuleType | Task[Any, Any], **functions: Callable[..., Any]) -> Worker:
        started.append(WorkerThread(dragoman_broker, tasks, functions))
        return started[-1].worker

    with using_everywhere(dragoman_client):
        try:
            yield start
        finally:
            for each in started:
                each.close()
