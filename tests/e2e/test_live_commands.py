"""Commands that show a broker while it runs, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from native_worker import HandWorker
from terminals import TerminalProgram

from dragoman import Client, LocalBroker


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker("tcp://127.0.0.1:0", "http://127.0.0.1:0") as broker:
        yield broker


@pytest.fixture
def worker(broker: LocalBroker) -> Iterator[HandWorker]:
    worker = HandWorker(broker.urls["native"].removeprefix("native+"), "echo")
    yield worker
    worker.stop()


def test_tail_prints_events_until_it_is_interrupted(broker: LocalBroker, worker: HandWorker) -> None:
    tail = TerminalProgram("tail", "--service", "echo", "--connect", broker.urls["http"])
    with Client(broker.urls["native"]) as client:
        while "running" not in tail.shown:  # events before the stream is open are not repeated
            client.call("echo", b"hello", timeout=10)
    tail.shows("done       after ")
    assert "\x1b[36mrunning" in tail.raw
    tail.interrupt()
    assert tail.ends() == 130
