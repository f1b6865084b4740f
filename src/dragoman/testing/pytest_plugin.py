"""Pytest fixtures for programs that use Dragoman. Pytest loads them when Dragoman is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dragoman.sdk.client import Client
    from dragoman.testing.local import LocalBroker


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
