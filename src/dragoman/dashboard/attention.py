"""Findings that need attention, each with a sentence and an advice; and since when they hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dragoman.operations.dashboard_schemas import AboutView, Level

APPEAR: Final = 5.0  # seconds that a finding must hold before it is shown
DISAPPEAR: Final = 10.0  # seconds that it must be over before it is not shown any more
LEVELS: Final = {"error": 0, "warning": 1, "info": 2}

Key = tuple[str, str | None, int | None, str | None, str]


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding about one moment. `services`: those it concerns; empty: the broker."""

    kind: str
    level: Level
    about: AboutView
    text: str
    advice: str
    services: tuple[str, ...] = ()
    subject: str = ""  # tells findings of the same kind about the broker apart
    weight: float = 0.0  # of two findings of a level, the one with more comes first

    @property
    def key(self) -> Key:
        about = self.about
        return self.kind, about.service, about.worker, about.schedule, self.subject


@dataclass(slots=True)
class Standing:
    """A finding with its times."""

    finding: Finding
    since: float
    seen: float


class Attention:
    """The findings that hold: one appears after 5 seconds, and disappears 10 seconds after its end."""

    def __init__(self) -> None:
        self._known: dict[Key, Standing] = {}
        self.standing: list[Standing] = []  # those that are shown, worst first

    def update(self, findings: list[Finding], now: float) -> None:
        """Take the findings of this moment."""
        for finding in findings:
            known = self._known.get(finding.key)
            if known is None:
                self._known[finding.key] = Standing(finding, now, now)
            else:
                known.finding, known.seen = finding, now
        self._known = {
            key: each
            for key, each in self._known.items()
            if each.seen == now or (now - each.seen < DISAPPEAR and each.seen - each.since >= APPEAR)
        }
        shown = [each for each in self._known.values() if each.seen - each.since >= APPEAR]
        self.standing = sorted(shown, key=lambda each: (LEVELS[each.finding.level], -each.finding.weight))
