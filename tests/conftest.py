"""Fixtures of tests that start processes; the classes are in programs.py."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from authority import Authority
from nats_servers import NatsCluster, NatsServer, start_on_free_ports
from programs import Programs

TESTS = Path(__file__).parent

# A process in the background of a shell script ignores Ctrl-C, and so would all processes that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


# Tests of these files take seconds each, some of them a minute.
LONG = ("compiled/", "sim/", "machine/", "typing/", "browser/", "e2e/test_chaos", "interop/test_openapi.py")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start long tests first, shared out among the processes: none of them is then left alone with one at the end.

    Each process gets one block of the list (`--dist worksteal`), so each block begins with its share of long files.
    """
    count = getattr(config, "workerinput", {}).get("workercount", 1)
    files: dict[Path, list[pytest.Item]] = {}
    others: list[pytest.Item] = []
    for item in items:
        is_long = item.path.relative_to(TESTS).as_posix().startswith(LONG)
        (files.setdefault(item.path, []) if is_long else others).append(item)
    shares: list[list[pytest.Item]] = [[] for _ in range(count)]
    for number, long in enumerate(files.values()):
        shares[number % count] += long
    left = len(items)
    items.clear()
    for number, share in enumerate(shares):
        room = max(left // (count - number) - len(share), 0)
        items += [*share, *others[:room]]
        del others[:room]
        left -= room + len(share)


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over the thousands of collected tests, which are never garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Starts programs that end with the test."""
    programs = Programs(tmp_path)
    yield programs
    programs.end_all()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A certificate authority for tests of TLS."""
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A NATS server with JetStream and without credentials, shared by the tests of a module."""
    folder = tmp_path_factory.mktemp("nats")
    settings = f'jetstream {{ store_dir: "{folder / "data"}" }}'
    server = start_on_free_ports(lambda: NatsServer(folder / "server", settings=settings))
    yield server
    server.kill()


@pytest.fixture(scope="module")
def nats_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    """Three NATS servers with JetStream, shared by the tests of a module. A test that kills one starts it again."""
    folder = tmp_path_factory.mktemp("nats")
    cluster = start_on_free_ports(lambda: NatsCluster(folder))
    yield cluster
    cluster.kill()


@pytest.fixture
def start_nats(tmp_path: Path) -> Iterator[Callable[..., NatsServer]]:
    """Starts NATS servers with settings, which end with the test."""
    started: list[NatsServer] = []

    def start(settings: str = "") -> NatsServer:
        name = f"s{len(started)}"
        started.append(start_on_free_ports(lambda: NatsServer(tmp_path / name, name, settings)))
        return started[-1]

    yield start
    for each in started:
        each.kill()
