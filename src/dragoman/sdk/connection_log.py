"""Log lines about the connection of a worker."""

from __future__ import annotations

import logging
from typing import Protocol

from dragoman.sdk.address import SocketAddress
from dragoman.sdk.errors import WrongDialect

log = logging.getLogger("dragoman.worker")


class PortKnowledge(Protocol):
    """Implemented by `recognition.py:Recognition` and, for several addresses, by `candidates.py:Round`."""

    @property
    def is_known(self) -> bool:
        """Return whether a broker has answered at the address."""


class ConnectionLog:
    """Logs attempts to connect. A port that has another protocol is reported once: the worker retries, because a broker
    may take the port later, but the lines of these attempts have level debug until a broker answers."""

    def __init__(self, recognition: PortKnowledge) -> None:
        self._recognition = recognition
        self._reported = ""  # the last report about a wrong port
        self._is_connection_hidden = False  # the line about the present connection had level debug

    def write(self, level: int, text: str, *facts: object) -> None:
        log.log(logging.DEBUG if self._is_quiet else level, text, *facts)

    def connected(self, place: SocketAddress) -> None:
        self._is_connection_hidden = self._is_quiet
        self.write(logging.INFO, "connected to %s", place)

    def proven(self, place: SocketAddress) -> None:
        """Log a connection whose port is right, unless `connected` has."""
        if self._is_connection_hidden and not self._is_quiet:
            self.connected(place)

    def failed(self, problem: object, delay: float) -> None:
        """Log an error after which the worker connects again in `delay` seconds."""
        if not isinstance(problem, WrongDialect):
            self._reported = ""
            log.warning("%s; trying again in %.1f s", problem, delay)
        elif str(problem) != self._reported:
            self._reported = str(problem)
            log.error(
                "%s. Stop this worker and correct its address; until then it retries without further messages", problem
            )

    def moved(self, problem: object) -> None:
        """Log an error after which the worker dials another address at once."""
        log.warning("%s; trying another address", problem)

    @property
    def _is_quiet(self) -> bool:
        return bool(self._reported) and not self._recognition.is_known
