"""Workers that are chosen last for a while (R38)."""

from __future__ import annotations

from dragoman.core.infinity import inf
from dragoman.core.model import Service


def end_hold_back(service: Service, now: float) -> None:
    """Move workers whose `held_back_until` has passed to the head of the idle list."""
    held_back = list(service.held_back)
    held_back.reverse()
    for worker in held_back:
        if worker.held_back_until <= now:
            for each in worker.services:
                each.held_back.remove(worker)
                each.idle.prepend(worker)
    service.held_back_until = min((each.held_back_until for each in service.held_back), default=inf)
