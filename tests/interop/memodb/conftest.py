"""Fixtures of the MemoDB tests; the classes are in memodb_peers.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from memodb_peers import Nngs


@pytest.fixture(params=["tcp", "tcp6", "ipc"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    places = {"tcp": "tcp://127.0.0.1:0", "tcp6": "tcp://[::1]:0", "ipc": f"ipc://{tmp_path}/s"}
    return f"memodb+{places[request.param]}"


@pytest.fixture(params=["tcp", "ipc"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memodb+{'tcp://127.0.0.1:0' if request.param == 'tcp' else f'ipc://{tmp_path}/s'}"


@pytest.fixture
def nngs() -> Iterator[Nngs]:
    nngs = Nngs()
    yield nngs
    nngs.close()
