"""Cleans up after each test of pairs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pairs import asgi


@pytest.fixture(autouse=True)
def requests() -> Iterator[None]:
    yield
    asgi.end_all()
