"""Tasks with limits, for `dragoman worker limited_tasks --threads 4`."""

from __future__ import annotations

import threading

from dragoman import task

_lock = threading.Lock()
_running = 0
_order = 0


@task(max_running=1)
def alone(seconds: float) -> int:
    """Return the number of jobs of this task that run, with this one."""
    global _running
    with _lock:
        _running += 1
        found = _running
    threading.Event().wait(seconds)
    with _lock:
        _running -= 1
    return found


@task(max_running_per_tenant=1, rate="1000/s")
def fair() -> int:
    """Return the place of this job in the order of starts."""
    global _order
    with _lock:
        _order += 1
        return _order
