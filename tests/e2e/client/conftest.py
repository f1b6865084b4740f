"""Fixtures of the client tests: a broker, a hand-written worker, a client, an event loop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from client_broker import Broker
from native_worker import HandWorker

from dragoman import Client
from programs import Programs


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    programs = Programs(tmp_path_factory.mktemp("broker"))
    yield Broker(programs)
    programs.end_all()


@pytest.fixture
def worker(broker: Broker) -> Iterator[HandWorker]:
    worker = HandWorker(broker.url, "echo", "default")
    yield worker
    worker.stop()


@pytest.fixture(params=["asyncio", "uvloop"])
def loop_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(broker: Broker, worker: HandWorker) -> Iterator[Client]:
    with Client(broker.url) as client:
        yield client
