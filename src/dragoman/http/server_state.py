"""State shared by all connections of one HTTP server: limits, host names, counts, and one slow timer."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any, cast

from uvicorn.server import ServerState

from dragoman.core.memory import MemoryAccount
from dragoman.core.shares import Shares
from dragoman.http.admission import Admission
from dragoman.http.all_bodies import AllBodies
from dragoman.http.body_budget import BodyBudget
from dragoman.http.connection import TimedConnection
from dragoman.http.framing import RequestError
from dragoman.http.hosts import Hosts
from dragoman.http.limits import HttpLimits
from dragoman.http.security_headers import header_lines, security_headers
from dragoman.http.transports import Traffic

SLOWEST_SWEEP = 0.5
RECHECK = 60.0  # seconds after which the principals of running requests are checked again
LATE = 1.0  # seconds; a sweep that is this late means that the server was paused

Report = Callable[[str, str, str], None]  # reason, address, detail
ReportError = Callable[[BaseException], None]
TooLarge = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class ConnectionCheck:
    """Check of new connections. Health checks in `public_paths` are answered to everybody.

    `admit(socket, certificate)` returns the principal of a connection, None if its requests must prove one, or the
    error of all its other requests; it raises OSError if the connection has ended. `certificate` is verified (DER).
    A request that a proxy has forwarded has the proxy's user, not that of its client. `user` raises OSError, too.
    """

    admit: Callable[[Any, bytes | None], Admission | RequestError | None] = lambda *_: None
    public_paths: frozenset[bytes] = frozenset()
    rejects_forwarded: bool = False
    user: Callable[[Any], str] = lambda _: ""  # of a socket on this machine, `uid N`, if the kernel names it
    by_request: Callable[[dict[str, Any]], Admission | None] = lambda _: None  # the admission of a request's scope


NO_CHECK = ConnectionCheck()


class HttpServerState:
    """Shared state of the connections, and their timer."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: HttpLimits,
        hosts: Hosts,
        report: Report,
        failed: ReportError,
        too_large: TooLarge,
        health_paths: Iterable[str] = (),
        check: ConnectionCheck = NO_CHECK,
        hsts: int = 0,
        all_bodies: AllBodies | None = None,
    ) -> None:
        """`all_bodies`: those of all listeners; None: there is no other listener."""
        self.loop = loop
        self.limits = limits
        self.hosts = hosts
        self.report = report
        self.failed = failed
        self.too_large = too_large
        self.health_paths = frozenset(path.encode() for path in health_paths)
        self.check = check
        self.is_closing = False
        self.traffic = Traffic()
        self.bodies = BodyBudget(limits.max_memory, all_bodies or AllBodies(MemoryAccount(limits.max_memory)))
        self.shared = ServerState()
        self.shares = Shares(limits.max_connections)  # of connections that are not in the reserve (R254)
        self.by_address: Counter[str] = Counter()  # without connections in the reserve
        self.reserve: dict[TimedConnection, None] = {}  # connections above the limits, oldest first
        times = (limits.head_timeout, limits.idle_timeout, limits.body_timeout, limits.body_grace)
        self._every = min(SLOWEST_SWEEP, *(each / 4 for each in times))
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._swept = 0.0
        self._rechecked = 0.0
        self._second = 0
        self._security = header_lines(security_headers(hsts))
        self.common_headers = b""  # lines of every response

    def __len__(self) -> int:
        return len(self.shared.connections)

    def connections(self) -> list[TimedConnection]:
        return list(cast("set[TimedConnection]", self.shared.connections))

    def wake(self) -> None:
        """Start the timer, because there is a connection."""
        if self._timer is None:
            self._update_date()
            self._swept = self._rechecked = self.loop.time()
            self._timer = self.loop.call_later(self._every, self._sweep)

    def leave(self) -> None:
        """Handle the end of a connection."""
        if not self.shared.connections:
            for waiting in self._waiting:
                if not waiting.done():
                    waiting.set_result(None)
            self._waiting.clear()

    async def empty(self) -> None:
        """Wait until there is no connection."""
        if self.shared.connections:
            waiting = self.loop.create_future()
            self._waiting.append(waiting)
            await waiting

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end_revoked(self) -> int:
        """Abort connections and running requests of principals that have lost their access. Returns their number."""
        self._rechecked = self.loop.time()
        return sum(connection.end_if_revoked() for connection in self.connections())

    def _sweep(self) -> None:
        now = self.loop.time()
        if now - self._rechecked >= RECHECK:
            self.end_revoked()
        passed, self._swept = now - self._swept, now
        self._timer = self.loop.call_later(self._every, self._sweep) if self.shared.connections else None
        self._update_date()
        gap = passed - self._every
        for connection in self.connections():
            if gap > LATE:
                connection.forgive(gap)  # checked in the next sweep, when pending input has been read
            else:
                connection.look(now, passed)

    def _update_date(self) -> None:
        second = int(time.time())
        if second != self._second:
            self._second = second
            self.common_headers = b"date: %b\r\n%b" % (formatdate(second, usegmt=True).encode(), self._security)
