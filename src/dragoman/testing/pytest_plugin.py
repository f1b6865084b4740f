"""Fixtures for people who test what they built on Dragoman; pytest finds them by itself once it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dragoman.sdk.client import Client
    from dragoman.testing.local import LocalBroker


@pytest.fixture
def dragoman_broker() -> Iterator[LocalBroker]:
    """A broker of the test's own: `dragoman_broker.url` is where clients and workers connect."""
    from dragoman.testing.local import LocalBroker

    with LocalBroker() as broker:
        yield broker


@pytest.fixture
def dragoman_client(dragoman_broker: LocalBroker) -> Iterator[Client]:
    """A client of that broker."""
    with dragoman_broker.client() as client:
        yield client
