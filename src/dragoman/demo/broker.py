"""The broker of the demo: its listeners, the clients of each dialect, and what the demo waits for."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

from dragoman.demo.processes import Child, DemoError, ProcessTree
from dragoman.dialects.catalogue import DIALECTS
from dragoman.operations.schemas import ServiceView
from dragoman.sdk.client import Client

T = TypeVar("T")

PATIENCE = 60.0  # seconds; only a broken part of the demo takes this long
INTERVAL = 0.02  # seconds between two looks
CALLERS = [name for name, row in DIALECTS.items() if row.has_callers]
WORKERS = list(DIALECTS)


class DemoBroker:
    """A broker in a child process, on free ports.

    A dialect without service names has one listener for each service; `services` has the services of each such dialect.
    """

    def __init__(self, tree: ProcessTree, services: Mapping[str, Iterable[str]]) -> None:
        self._tree = tree
        places = tree.folder / "addresses.json"
        urls = [url for dialect in DIALECTS for url in self._listeners(dialect, services.get(dialect, ()))]
        self.process = tree.start("broker", "run_broker", str(places), *urls)
        self._wait_until(places.exists, "the broker listens")
        self._urls = {
            (dialect, service, role): _url(dialect, service, place)
            for dialect, service, role, place in json.loads(places.read_text())
        }
        self._clients: dict[tuple[str, str], Client[bytes]] = {}
        self.http = self.client("http")

    @property
    def dashboard(self) -> str:
        """The address of the dashboard."""
        return f"{self.url('http')}/"

    def _listeners(self, dialect: str, services: Iterable[str]) -> list[str]:
        row = DIALECTS[dialect]
        if row.has_service_names:
            return [f"{dialect}+tcp://127.0.0.1:0" if dialect != "http" else "http://127.0.0.1:0"]
        if not row.has_callers:
            folder = self._tree.folder
            return [f"{dialect}+unix://{quote(str(folder / each))}?service={quote(each)}" for each in services]
        limits = f"job_timeout={PATIENCE:g}&queue_timeout={PATIENCE:g}"
        return [f"{dialect}+tcp://127.0.0.1:0?frontend=0&service={quote(each)}&{limits}" for each in services]

    def url(self, dialect: str, service: str = "", role: str = "callers") -> str:
        """The address for callers or workers of a service."""
        named = "" if DIALECTS[dialect].has_service_names else service
        return self._urls.get((dialect, named, role)) or self._urls[dialect, named, "both"]

    def client(self, dialect: str, service: str = "") -> Client[bytes]:
        """The client of this dialect that can call this service. It is closed with the broker."""
        url = self.url(dialect, service)
        if (dialect, url) not in self._clients:
            self._clients[dialect, url] = Client(url)
        return self._clients[dialect, url]

    def wait_for_workers(self, service: str, count: int = 1) -> None:
        """Wait until this number of idle workers offers the service."""

        def has_workers() -> bool:
            found = self.service(service)
            return found is not None and found.idle >= count

        self._wait_until(has_workers, f"{count} workers of {service!r} are idle")

    def wait_for_state(self, job: str, state: str) -> None:
        """Wait until a job is in this state."""
        self._wait_until(lambda: self.http.job(job).state == state, f"job {job} is {state}")

    def service(self, name: str) -> ServiceView | None:
        """The view of a service; None if the broker does not know it yet."""
        return next((each for each in self.http.services() if each.name == name), None)

    def _wait_until(self, fact: Callable[[], T], text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not fact():
            if not self.process.is_alive:
                raise DemoError(f"the broker has ended:\n{self.process.last_lines()}")
            if time.monotonic() > deadline:
                raise DemoError(f"waited {PATIENCE:g} s in vain until {text}")
            time.sleep(INTERVAL)

    def start_worker(self, dialect: str, handlers: Mapping[str, str]) -> Child:
        """Start a worker in Python that offers these services with these handlers."""
        service = next(iter(handlers))
        return self._tree.start(f"{dialect}-worker", "run_worker", self.url(dialect, service, "workers"), handlers)

    def start_program(self, name: str, *words: str) -> Child:
        """Start another program."""
        return self._tree.start(name, "run_program", *words)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for client in self._clients.values():
            client.close()


def _url(dialect: str, service: str, place: str) -> str:
    if dialect == "http":
        return place
    place = place.removesuffix("/main.sock")  # a listener of Worker-Controller is its folder
    return f"{dialect}+{place}?service={quote(service)}" if service else f"{dialect}+{place}"
