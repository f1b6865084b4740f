"""No reference cycles over real sockets: what calls and jobs leave behind in clients, workers and broker (R207).

Broker, clients and workers run in this process, in threads.
"""

from __future__ import annotations

import gc
import http.client
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from case_tables import check_every_row
from dragoman import Client, DragomanError, LocalBroker, Worker
from programs import PATIENCE

MARK = b"bonjour" * 20_000
ROUNDS = 5


def echo(payload: bytes) -> bytes:
    return payload


def broken(payload: bytes) -> bytes:
    raise ValueError("no")


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker("tcp://127.0.0.1:0", "http://127.0.0.1:0", "memodb+tcp://127.0.0.1:0") as broker:
        workers = [Worker(url, threads=1) for url in (broker.urls["native"], broker.urls["http"])]
        for number, worker in enumerate(workers):
            worker.service(f"echo-{number}")(echo)
            worker.service(f"broken-{number}")(broken)
        threads = [threading.Thread(target=worker.run) for worker in workers]
        for thread in threads:
            thread.start()
        broker.wait_for_workers(2, timeout=PATIENCE)
        yield broker
        for worker, thread in zip(workers, threads, strict=True):
            worker.stop()
            thread.join(PATIENCE)


def call(client: Client, name: str) -> None:
    assert client.call(name, MARK) == MARK


def fail(client: Client, name: str) -> None:
    with pytest.raises(DragomanError):
        client.call(name, MARK)


def ask_for_nothing(client: Client, name: str) -> None:
    with pytest.raises(DragomanError):
        client.result(32 * "0")


def enqueue(client: Client, name: str) -> None:
    assert client.result(client.enqueue(name, MARK), timeout=PATIENCE) == MARK


def map_broken(client: Client, name: str) -> None:
    with pytest.raises(DragomanError):
        list(client.map(name, [MARK, MARK]))


def in_two_pieces(client: Client, name: str) -> None:
    """A request whose body comes later than its head, on a connection of its own."""
    place = urlsplit(str(client.url))
    connection = http.client.HTTPConnection(place.hostname or "", place.port)
    connection.putrequest("POST", f"/v1/call/{name}")
    connection.putheader("Content-Length", str(len(MARK)))
    connection.endheaders()
    connection.send(MARK)
    assert connection.getresponse().read() == MARK
    connection.close()


def test_calls_of_clients_and_jobs_of_workers_leave_no_reference_cycle(broker: LocalBroker) -> None:
    """A bug: the error of a call, its traceback and its future referred to each other; so did a worker's job over HTTP
    and its record, and the response of a request that came in pieces and its connection."""

    def check(dialect: str, path: Callable[[Client, str], None], name: str) -> None:
        with Client(broker.urls[dialect]) as client:
            path(client, name)  # caches, connections and classes that are made on first use
            gc.collect()
            gc.disable()
            gc.set_debug(gc.DEBUG_SAVEALL)
            try:
                for _ in range(ROUNDS):
                    path(client, name)
                call(client, "echo-0")  # the broker and the workers have done with the last round
                found = collected()
            finally:
                gc.set_debug(0)
                gc.enable()
        kinds = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in found)
        payloads = sum(isinstance(each, bytes | bytearray) and MARK in each for each in found)
        assert ([f"{name} x{count}" for name, count in kinds.items() if "dragoman." in name], payloads) == ([], 0)

    rows = [
        (dialect, path, f"{name}-{number}")
        for dialect in ("native", "http")
        for path, name in (
            *((call, "echo"), (fail, "broken"), (fail, "nobody"), (ask_for_nothing, ""), (map_broken, "broken")),
            (enqueue, "echo"),
        )
        for number in (0, 1)
    ]
    check_every_row(check, [*rows, ("http", in_two_pieces, "echo-0")])


def collected() -> list[object]:
    """Collect garbage, and return what was found of the broker, its clients and workers."""
    gc.collect()
    found = [each for each in gc.garbage if type(each).__module__.startswith("dragoman.") or isinstance(each, bytes)]
    gc.garbage.clear()
    return found
