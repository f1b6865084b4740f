"""Fixtures of the tests with real sockets; the classes are in setup.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker_setup import BrokerSetup, Setup, Visitors

from dragoman.sdk.address import SocketAddress, TcpAddress, UnixAddress


@pytest.fixture(params=["asyncio", "uvloop"])
def loop_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def setup(loop_name: str) -> Iterator[Setup]:
    setup = Setup(loop_name)
    yield setup
    setup.close()


@pytest.fixture
def visitors() -> Iterator[Visitors]:
    visitors = Visitors()
    yield visitors
    visitors.close()


@pytest.fixture(params=["tcp", "ipc"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SocketAddress:
    """An address to listen on: a free port, or a path in the test's folder."""
    return TcpAddress("127.0.0.1", 0) if request.param == "tcp" else UnixAddress(str(short(tmp_path) / "s"))


@pytest.fixture
def free_path(tmp_path: Path) -> Path:
    return short(tmp_path) / "s"


def short(folder: Path) -> Path:
    """Check that the folder's path is short enough: a socket's path has at most 107 bytes."""
    assert len(str(folder)) < 100, f"{folder} is too long for sockets: set --basetemp"
    return folder


@pytest.fixture
def broker_setup() -> Iterator[Callable[..., BrokerSetup]]:
    """Starts brokers that end with the test."""
    setups: list[BrokerSetup] = []

    def start(*urls: str, **config: object) -> BrokerSetup:
        setups.append(BrokerSetup(*urls, **config))
        return setups[-1]

    yield start
    for each in setups:
        each.close()
