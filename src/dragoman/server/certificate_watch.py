"""Expiry of the listeners' certificates: warnings in the log before it, and a problem in the health after it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

INTERVAL: Final = 3_600.0
DAY: Final = 86_400.0
WARNINGS: Final = (1, 7, 30)  # days before the expiry


class CertificateWatch:
    """Looks at the certificates in use once an hour. `expiries` returns (listener, Unix time of its expiry)."""

    def __init__(
        self,
        log: Any,
        expiries: Callable[[], Iterable[tuple[str, float]]],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._log = log
        self._expiries = expiries
        self._wall_clock = wall_clock
        self._warned: dict[tuple[str, float], int] = {}  # the last warning about a certificate, in days
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self.look()
        self._timer = loop.call_later(INTERVAL, self.start, loop)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """Log certificates that expire soon: 30 days, 7 days and 1 day before, each once."""
        present = dict.fromkeys(self._expiries())
        self._warned = {each: days for each, days in self._warned.items() if each in present}
        for certificate in present:
            listener, expiry = certificate
            left = (expiry - self._wall_clock()) / DAY
            days = next((each for each in WARNINGS if left <= each), None)
            if days is not None and days < self._warned.get(certificate, WARNINGS[-1] + 1):
                self._warned[certificate] = days
                advice = "replace its files, then send SIGHUP"
                self._log.warning("certificate expires", listener=listener, days=round(left, 1), note=advice)

    def problems(self) -> list[str]:
        """Return a sentence for each certificate that has expired."""
        now = self._wall_clock()
        return [f"the certificate of {listener} has expired" for listener, end in self._expiries() if end <= now]
