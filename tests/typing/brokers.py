"""Types of the broker for tests, for type checkers."""

from __future__ import annotations

from typing import Any, assert_type

from dragoman import Client, LocalBroker
from dragoman.testing.local import VirtualClock

with LocalBroker() as broker:
    assert_type(broker, LocalBroker)
    assert_type(broker.url, str)
    assert_type(broker.urls, dict[str, str])
    assert_type(broker.client(), Client[bytes])
    assert_type(broker.client(codec="json", wait_for_broker=False), Client[Any])
    broker.wait_for_workers(2, service="resize", timeout=5)
    broker.client(patience=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]

with LocalBroker("memodb+tcp://127.0.0.1:0", clock=VirtualClock()) as broker:
    broker.advance(3600)

LocalBroker(7400)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_something(dragoman_broker: LocalBroker, dragoman_client: Client) -> None:
    assert_type(dragoman_client.call("resize"), bytes)
