"""Publishes events of the core to their subscribers."""

from __future__ import annotations

from dragoman.core.errors import InvariantBroken
from dragoman.core.events import KIND_NAMES, Event, Events
from dragoman.server.reports import Reports


class EventPublisher:
    """Passes each event to its subscribers. A subscriber that raises is logged; the others still get the event."""

    def __init__(self, events: Events, reports: Reports) -> None:
        self._events = events
        self._reports = reports

    def publish(self, event: Event, now: float) -> None:
        for subscription in self._events.subscribers_of(event):
            if subscription.is_active:
                try:
                    subscription.receive(event, now)
                except InvariantBroken:
                    raise
                except Exception as error:
                    self._reports.internal_error(error, published=KIND_NAMES[event.kind])
