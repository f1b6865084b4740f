"""Score of a service by which lists put those first that need attention."""

from __future__ import annotations

from typing import Final

BLOCKED: Final = 60_000  # added while jobs wait and none can be dispatched


def service_need(
    waiting: int, oldest: float, workers: int, paused: bool, done: float, undone: float, is_limited: bool = False
) -> int:
    """Return the score: milliseconds that the oldest job has waited, a minute more if the service is paused or has no
    worker, and 10 seconds multiplied by the share of jobs that ended other than `done`. `done`, `undone`: counts or
    rates of jobs that ended. `is_limited`: jobs wait because of a limit of the service, as somebody has decided. Of
    services that need nothing, those come first in which jobs have ended."""
    score = 1 if done > 0.0 or undone > 0.0 else 0
    if waiting and not is_limited:
        score += round(oldest * 1_000.0)
    if waiting and (paused or not workers):
        score += BLOCKED
    if undone > 0.0:
        score += round(10_000.0 * undone / (done + undone))
    return score
