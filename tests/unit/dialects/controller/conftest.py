"""Fixtures of the controller: one session in its world, and one worker of ours."""

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
