"""Fixtures of the tests with real sockets; the classes are in house.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from house import BrokerHouse, House, Visitors

from dragoman.sdk.address import SocketAddress, TcpAddress, UnixAddress


@pytest.fixture(params=["asyncio", "uvloop"])
def loop_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def house(loop_name: str) -> Iterator[House]:
    house = House(loop_name)
    yield house
    house.close()


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
def broker_house() -> Iterator[Callable[..., BrokerHouse]]:
    """Starts brokers that end with the test."""
    houses: list[BrokerHouse] = []

    def start(*urls: str, **config: object) -> BrokerHouse:
        houses.append(BrokerHouse(*urls, **config))
        return houses[-1]

    yield start
    for each in houses:
        each.close()
