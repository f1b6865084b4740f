"""Fixtures of the core's tests: a broker that is checked after every call, and a caller."""

from __future__ import annotations

import pytest

from .world import Caller, CheckedBroker


@pytest.fixture
def broker() -> CheckedBroker:
    return CheckedBroker()


@pytest.fixture
def caller() -> Caller:
    return Caller()
