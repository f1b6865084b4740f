"""The sentence about a worker: whether it can be reached, whether it is slow, and the jobs that it holds."""

from __future__ import annotations

from dragoman.core.states import BACKING_OFF, DETACHED, DRAINING, STARTING, STUCK
from dragoman.dashboard.phrases import count_of, seconds
from dragoman.operations.schemas import WorkerView

SLOW = 1.5  # pace from which a worker is called slow
SILENT = 0.6  # share of the lease from which the silence of a worker is the first thing to say


def worker_says(view: WorkerView) -> str:
    """Return one or two sentences."""
    held = len(view.running)
    if view.state == DETACHED:
        return _detached(view, held)
    if view.state == DRAINING:
        return f"It is draining: it finishes {count_of(held, 'job')} and gets no more." if held else "It is drained."
    if view.state == STUCK:
        return "It is stuck: its slots are taken by attempts that have ended. It gets no job until it proves free."
    if view.state == STARTING:
        return "It is starting: it has joined and is not ready yet."
    if view.state == BACKING_OFF:
        return "It is backing off: it declined a job and gets none for a moment."
    if held and view.lease is not None and view.silent > SILENT * view.lease:
        return (
            f"It has been silent for {seconds(view.silent)}. It counts as dead after {seconds(view.lease)}, and "
            f"{count_of(held, 'job')} with it."
        )
    jobs = count_of(held, "job") if held else "no job"
    free = view.capacity - held
    left = f": {free} {'is' if free == 1 else 'are'} free" if held and free > 0 else ""
    return f"{_pace(view)}It holds {jobs} and has {count_of(view.capacity, 'slot')}{left}."


def _detached(view: WorkerView, held: int) -> str:
    said = f"It has been unreachable for {seconds(view.silent)}."
    if view.lease is None:
        return said
    left = seconds(max(0.0, view.lease - view.silent))
    jobs = f" {count_of(held, 'job')} of it {'is' if held == 1 else 'are'} then lost or retried." if held else ""
    return f"{said} Its lease ends in {left}.{jobs}"


def _pace(view: WorkerView) -> str:
    if view.pace is None or view.pace < SLOW:
        return ""
    return f"Its attempts take {view.pace:.1f} times as long as the median of its service. "
