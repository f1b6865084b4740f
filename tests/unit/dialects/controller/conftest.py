"""Fixtures of the controller: a world with one broker side, and one worker side."""

from __future__ import annotations

import pytest

from dragoman.dialects.controller.editions import EDITIONS

from .worker_side import Worker
from .world import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(params=EDITIONS.values(), ids=EDITIONS)
def worker(request: pytest.FixtureRequest) -> Worker:
    return Worker(request.param)
