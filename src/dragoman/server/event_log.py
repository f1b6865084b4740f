"""Writes log lines about events of the core."""

from __future__ import annotations

from dragoman.core.events import BROKER_DRAINING, BrokerEvent, Event, Events
from dragoman.server.drops import Log


class EventLog:
    """The log as a subscriber. It names only the kinds that it writes, so no job costs more for it."""

    def __init__(self, events: Events, log: Log, drain_timeout: float) -> None:
        self._log = log
        self._drain_timeout = drain_timeout
        events.subscribe(BROKER_DRAINING, self.receive)

    def receive(self, event: Event, now: float) -> None:
        if isinstance(event, BrokerEvent):
            self._log("info", "draining", running=event.running, seconds=self._drain_timeout)
