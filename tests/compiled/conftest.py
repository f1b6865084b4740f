"""Fixtures of the tests of the compiled product."""

from __future__ import annotations

import pytest
from product import Product, build_once


@pytest.fixture(scope="session")
def product() -> Product:
    return build_once()
