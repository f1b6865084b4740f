"""Recurring jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from dragoman.core.model import JobId
from dragoman.desk.forms import CronForm, CronView, Objection


class Calendar:
    def __init__(
        self,
        submit: Callable[[CronForm, bytes, str, float], JobId | None],
        note: Callable[[str, str | None], None],
        is_over: Callable[[JobId], bool],
    ) -> None: ...

    def load(self, notes: Mapping[str, str], wall: float) -> None: ...

    def list(self) -> list[CronView]:
        return []

    def get(self, name: str) -> CronView:
        raise Objection("not found", f"no recurring job is called {name!r}")

    def put(self, form: CronForm, wall: float) -> CronView:
        raise Objection("invalid", "not yet")

    def remove(self, name: str) -> None:
        self.get(name)

    def pause(self, name: str, wall: float) -> CronView:
        return self.get(name)

    def resume(self, name: str, wall: float) -> CronView:
        return self.get(name)

    def tick(self, now: float, wall: float) -> float:
        return inf
