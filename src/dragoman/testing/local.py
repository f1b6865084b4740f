"""A broker inside a test: the same engine, in a thread, on free ports.

    with LocalBroker() as broker, Client(broker.url) as client:
        ...

On a virtual clock its time stands still until the test moves it, so that a deadline of an hour passes in a moment.
"""

from __future__ import annotations

import logging
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from dragoman.server.clock import now as real_clock
from dragoman.server.threaded import ThreadedServer

if TYPE_CHECKING:
    from dragoman.sdk.client import Client
    from dragoman.sdk.option_types import ClientOptions

log = logging.getLogger("dragoman.testing")

NATIVE = "tcp://127.0.0.1:0"
# Who talks to the broker lives by real time, and would be taken for dead when the virtual one runs ahead.
AGELESS = "lease=1e8&carrier_ping=1e8&carrier_timeout=2e8"


class VirtualClock:
    """Seconds that pass when somebody says so."""

    def __init__(self, start: float = 1_000.0) -> None:
        self._now = start

    def __call__(self) -> float:
        return self._now

    def set(self, now: float) -> None:
        assert now >= self._now, "time does not run backwards"
        self._now = now


class LocalBroker:
    """Listens on loopback from the moment it is made until it is closed, and keeps nothing on disk.

    Without `urls` it speaks the native dialect on a free port. With `clock`, a VirtualClock, `advance` moves its time;
    its native peers then have no lease that could run out, unless a URL of yours says so.
    """

    def __init__(self, *urls: str, clock: VirtualClock | None = None) -> None:
        self._clock = clock
        if not urls:
            urls = (f"{NATIVE}?{AGELESS}" if clock is not None else NATIVE,)
        self._thread = ThreadedServer(urls, log, "local broker", clock or real_clock)
        self._urls: dict[str, str] = {}
        for listener, places in self._thread.opened:
            for who, place in places:
                name = listener.address.dialect
                url = place if place.startswith("http:") else f"{name}+{place}"
                self._urls.setdefault(name if who == "both" else f"{name} {who}", url)

    @property
    def url(self) -> str:
        """Where clients and workers connect, in the first dialect that it speaks."""
        return next(iter(self._urls.values()))

    @property
    def urls(self) -> dict[str, str]:
        """The addresses by dialect; where callers and workers have places of their own, by `<dialect> callers` and
        `<dialect> workers`."""
        return dict(self._urls)

    @overload
    def client(self, *, codec: Literal["bytes"] = ..., **options: Unpack[ClientOptions]) -> Client[bytes]: ...

    @overload
    def client(self, *, codec: str, **options: Unpack[ClientOptions]) -> Client[Any]: ...

    def client(self, *, codec: str = "bytes", **options: Unpack[ClientOptions]) -> Client[Any]:
        """A client of this broker; close it, or use it in a `with`."""
        from dragoman.sdk.client import Client

        return Client(self.url, codec=codec, **options)

    def wait_for_workers(self, count: int = 1, service: str | None = None, timeout: float = 10.0) -> None:
        """Until so many workers are there (that offer `service`). Raises TimeoutError."""
        deadline = time.monotonic() + timeout
        while self._thread.run(lambda: self._workers(service)) < count:
            if time.monotonic() > deadline:
                whom = f"offer {service!r}" if service is not None else "have come"
                raise TimeoutError(f"after {timeout:g} s fewer than {count} workers {whom}")
            time.sleep(0.002)

    def advance(self, seconds: float) -> None:
        """Let the broker's time pass. What is due on the way happens in its order; then this returns."""
        clock = self._clock
        if clock is None:
            raise RuntimeError("this broker lives in real time: make it with LocalBroker(clock=VirtualClock())")
        self._thread.run(lambda: self._advance(clock, clock() + seconds))

    def close(self) -> None:
        """Stop listening and end every connection."""
        self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _workers(self, service: str | None) -> int:
        worker_registry = self._thread.server.broker.worker_registry
        if service is None:
            return len(worker_registry.workers)
        known = worker_registry.services.get(service)
        return known.workers if known is not None else 0

    def _advance(self, clock: VirtualClock, until: float) -> None:
        line = self._thread.server.runner
        due = line.run_once()
        while due < until:
            clock.set(max(clock(), due))
            due = line.run_once()
        clock.set(until)
        line.run_once()
