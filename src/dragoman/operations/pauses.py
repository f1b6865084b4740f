"""Pauses of services in the store. A value for each service has the operator, and another one has the time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dragoman.core.broker import Broker
from dragoman.core.model import Service

PAUSED_BY = "pause/"  # prefix of the keys whose value is the operator
PAUSED_AT = "paused-at/"  # prefix of the keys whose value is a time of the wall clock; earlier releases had none


def store_pause(service: Service, note: Callable[[str, str | None], None], offset: float) -> None:
    """Store whether the service is paused. `offset`: seconds that the wall clock is ahead of the broker's clock."""
    at = service.paused_at
    note(PAUSED_BY + service.name, service.paused_by if service.paused else None)
    note(PAUSED_AT + service.name, None if at is None else f"{at + offset:.3f}")


def restore_pauses(broker: Broker, notes: Mapping[str, str], offset: float) -> None:
    """Pause the services that were paused in an earlier run."""
    for key, by in notes.items():
        if key.startswith(PAUSED_BY):
            name = key.removeprefix(PAUSED_BY)
            broker.operator.pause(name, by, _time(notes.get(PAUSED_AT + name), offset))


def _time(text: str | None, offset: float) -> float | None:
    try:
        return None if text is None else float(text) - offset
    except ValueError:
        return None
