"""What the tests of the core share: a broker that is checked after every verb, and somebody who asks it."""

from __future__ import annotations

import pytest

from .world import Caller, CheckedBroker


@pytest.fixture
def broker() -> CheckedBroker:
    return CheckedBroker()


@pytest.fixture
def caller() -> Caller:
    return Caller()
