"""The sentence about a service: whether its workers are free, and whether its queue grows."""

from __future__ import annotations

from dragoman.core.states import BUSY
from dragoman.dashboard.phrases import count_of, rate, seconds
from dragoman.operations.schemas import ServiceView

STEADY = 0.02  # share of the arriving jobs by which a queue may grow or shrink and be called steady


def says(row: ServiceView, states: dict[str, int]) -> str:
    """Return one or two sentences. `states`: numbers of the service's workers by state."""
    return f"{_workers(row, states)} {_queue(row)}"


def _workers(row: ServiceView, states: dict[str, int]) -> str:
    if row.paused:
        by = f" by {row.paused_by}" if row.paused_by else ""
        return f"The service is paused{by}: its jobs are not dispatched."
    if not row.workers:
        return f"No worker offers '{row.name}'."
    if row.limits is not None and row.limits.reached is not None:
        return f"{row.limits.reached[0].upper()}{row.limits.reached[1:]}."
    if row.idle:
        if row.workers == 1:
            return "Its only worker is free."
        return f"{row.idle:,} of {count_of(row.workers, 'worker')} {'is' if row.idle == 1 else 'are'} free."
    busy = states.get(BUSY.value, 0)
    if busy >= row.workers or not states:
        return "Its only worker is busy." if row.workers == 1 else f"All {row.workers:,} workers are busy."
    counts = ", ".join(f"{count:,} {name}" for name, count in sorted(states.items()))
    if row.workers == 1:
        return f"Its only worker is not free ({next(iter(states))})."
    return f"None of {row.workers:,} workers is free ({counts})."


def _queue(row: ServiceView) -> str:
    arrived, done, undone = row.arrived or 0.0, row.done or 0.0, row.undone or 0.0
    ended = done + undone
    if not arrived and not ended:
        return f"{count_of(row.waiting, 'job')} {_waits(row.waiting)}." if row.waiting else "No jobs arrive."
    rates = f"{rate(arrived)} jobs/s arrive, {rate(done)} are done"
    if undone:
        rates += f", {rate(undone)} end otherwise"
    if row.paused:  # the means are those of before the pause, too
        waits = f"{count_of(row.waiting, 'job')} {_waits(row.waiting)}" if row.waiting else "no job waits"
        return f"{rate(arrived)} jobs/s arrive; {waits}."
    growth = arrived - ended
    if not row.waiting:
        return f"{rates}; no job waits."
    if abs(growth) <= max(STEADY * arrived, 0.05):
        return f"{rates}: the queue stays at {count_of(row.waiting, 'job')}."
    if growth > 0:
        return f"{rates}: the queue grows by {rate(growth)} a second."
    return f"{rates}: the queue shrinks by {rate(-growth)} a second and is empty in {seconds(row.waiting / -growth)}."


def _waits(count: int) -> str:
    return "waits" if count == 1 else "wait"
