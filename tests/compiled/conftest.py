"""Fixtures of the tests of the compiled product."""

from __future__ import annotations

import os

import pytest
from product import Product, build_once


@pytest.fixture(scope="session")
def product(tmp_path_factory: pytest.TempPathFactory) -> Product:
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # that of all processes of this run
    return build_once(folder / "product")
