"""A sample of the recent jobs of a service: the dialects of their callers, and the reasons of those that were not done.

Only jobs that are recorded are in it (`conversations.py`): every job while few arrive, of more about 50 in a second.
All other jobs cost nothing.
"""

from __future__ import annotations

from typing import Final

from dragoman.core.general_reasons import generalize
from dragoman.core.ids import JobId
from dragoman.core.states import Outcome

MOST_COUNTED: Final = 1_000  # callers; then all numbers are halved, so that the latest ones weigh most
MOST_REASONS: Final = 20
KEPT: Final = 3600.0  # seconds after which a reason that did not occur again is dropped


class SampledReason:
    """Jobs that ended with the same outcome and the same reason, apart from numbers and names in it."""

    __slots__ = ("count", "job", "last", "outcome", "reason")

    def __init__(self, outcome: Outcome, reason: str) -> None:
        self.outcome = outcome
        self.reason = reason  # with gaps
        self.count = 0
        self.last = 0.0  # time of the latest one
        self.job: JobId | None = None  # the latest one


class JobSample:
    """The sample of one service."""

    __slots__ = ("_counted", "_reasons", "callers")

    def __init__(self) -> None:
        self.callers: dict[str, int] = {}  # jobs by the dialect of their callers
        self._counted = 0
        self._reasons: dict[tuple[str, str], SampledReason] = {}

    def add_caller(self, dialect: str) -> None:
        """Count a job by the dialect of its caller."""
        self.callers[dialect] = self.callers.get(dialect, 0) + 1
        self._counted += 1
        if self._counted >= MOST_COUNTED:
            self.callers = {name: count // 2 for name, count in self.callers.items() if count > 1}
            self._counted = sum(self.callers.values())

    def add_reason(self, id: JobId, outcome: Outcome, reason: str, now: float) -> None:
        """Count a job that was not done. Beyond the limit, the reason that has not occurred for longest is dropped."""
        text = generalize(reason)
        key = (outcome.value, text)
        found = self._reasons.pop(key, None) or SampledReason(outcome, text)
        found.count += 1
        found.last = now
        found.job = id
        self._reasons[key] = found  # the latest one is last
        if len(self._reasons) > MOST_REASONS:
            del self._reasons[next(iter(self._reasons))]

    def reasons(self, now: float) -> list[SampledReason]:
        """Return the reasons of the last hour, the most frequent first."""
        recent = [each for each in self._reasons.values() if now - each.last < KEPT]
        return sorted(recent, key=lambda each: -each.count)
