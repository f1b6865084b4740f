"""A broker for tests: the real server in a thread, on free ports.

    with LocalBroker() as broker, Client(broker.url) as client:
        ...

With a virtual clock the broker's time changes only when the test advances it, so that an hour passes at once.
"""

from __future__ import annotations

import logging
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from dragoman.sdk.extras import needed_by

with needed_by("LocalBroker"):
    from dragoman.server.clock import now as real_clock
    from dragoman.server.threaded import ThreadedServer

if TYPE_CHECKING:
    from dragoman.sdk.client import Client
    from dragoman.sdk.option_types import ClientOptions

log = logging.getLogger("dragoman.testing")

NATIVE = "tcp://127.0.0.1:0"
# Clients and workers use real time. Without these options their leases would expire when virtual time advances.
NO_EXPIRY = "lease=1e8&carrier_ping=1e8&carrier_timeout=2e8"


class VirtualClock:
    """A clock that changes only when `set` is called."""

    def __init__(self, start: float = 1_000.0) -> None:
        self._now = start

    def __call__(self) -> float:
        return self._now

    def set(self, now: float) -> None:
        assert now >= self._now, "time does not run backwards"
        self._now = now


class LocalBroker:
    """A broker that listens on loopback until it is closed and stores nothing on disk.

    Without `urls` it listens for the native dialect on a free port. With `clock`, a VirtualClock, `advance` moves its
    time; then leases of native connections do not expire, unless a URL in `urls` sets one.
    """

    def __init__(self, *urls: str, clock: VirtualClock | None = None) -> None:
        self._clock = clock
        if not urls:
            urls = (f"{NATIVE}?{NO_EXPIRY}" if clock is not None else NATIVE,)
        self._thread = ThreadedServer(urls, log, "local broker", clock or real_clock)
        self._urls: dict[str, str] = {}
        for listener, places in self._thread.opened:
            for role, place in places:
                name = listener.address.dialect
                url = place if place.startswith("http:") else f"{name}+{place}"
                self._urls.setdefault(name if role == "both" else f"{name} {role}", url)

    @property
    def url(self) -> str:
        """The URL for clients and workers, of the first listener."""
        return next(iter(self._urls.values()))

    @property
    def urls(self) -> dict[str, str]:
        """The URLs by dialect. If callers and workers have separate ports, the keys are `<dialect> callers` and
        `<dialect> workers`."""
        return dict(self._urls)

    @overload
    def client(self, *, codec: Literal["bytes"] = ..., **options: Unpack[ClientOptions]) -> Client[bytes]: ...

    @overload
    def client(self, *, codec: str, **options: Unpack[ClientOptions]) -> Client[Any]: ...

    def client(self, *, codec: str = "bytes", **options: Unpack[ClientOptions]) -> Client[Any]:
        """Return a client of this broker. Close it, or use it in a `with` statement."""
        from dragoman.sdk.client import Client

        return Client(self.url, codec=codec, **options)

    def wait_for_workers(self, count: int = 1, service: str | None = None, timeout: float = 10.0) -> None:
        """Wait until `count` workers are connected (and offer `service`, if given). Raises TimeoutError."""
        deadline = time.monotonic() + timeout
        while self._thread.run(lambda: self._workers(service)) < count:
            if time.monotonic() > deadline:
                state = f"offer {service!r}" if service is not None else "are connected"
                raise TimeoutError(f"after {timeout:g} s fewer than {count} workers {state}")
            time.sleep(0.002)

    def workers_of(self, service: str) -> int:
        """Return the number of connected workers that offer a service."""
        return self._thread.run(lambda: self._workers(service))

    def advance(self, seconds: float) -> None:
        """Advance the broker's time. Everything that becomes due happens, in order, before this returns."""
        clock = self._clock
        if clock is None:
            raise RuntimeError("this broker uses real time; create it with LocalBroker(clock=VirtualClock())")
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
        runner = self._thread.server.runner
        due = runner.run_once()
        while due < until:
            clock.set(max(clock(), due))
            due = runner.run_once()
        clock.set(until)
        runner.run_once()
