"""Counts and publishes requests that were refused because their principal lacks a right (R152)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from dragoman.core.counters import Counters
from dragoman.core.events import RIGHT_REFUSED, Events
from dragoman.core.model import Caller
from dragoman.core.recipients import dialect_of
from dragoman.core.rights import CALL, Principal, Right


@final
class RefusedRights:
    """The one place where a missing right is recorded, for jobs, workers and operations of every dialect."""

    __slots__ = ("_counters", "_events")

    def __init__(self, counters: Counters, events: Events) -> None:
        self._counters: Final = counters
        self._events: Final = events

    def call(self, caller: Caller, service: str) -> str:
        """Record a submit without the right to it, and return the reason."""
        principal = caller.owner.principal
        self.note(principal, CALL, (service,), dialect_of(caller.recipient))
        return f"{principal.name} may not call '{service}'"

    def note(self, principal: Principal, right: Right, services: Iterable[str], dialect: str) -> None:
        """Record that the principal has no such right over some of these services; `*` stands for all services."""
        self._counters.refuse_right(right, dialect)
        if self._events.wanted & RIGHT_REFUSED:
            missing = [each for each in services if not principal.may(right, each)]
            self._events.right_refused(principal, right, tuple(missing), dialect)
