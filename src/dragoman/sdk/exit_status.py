"""Exit statuses of processes, in words."""

from __future__ import annotations

import signal


def exit_text(status: int | None) -> str:
    """`exit code 7`, or for a process that a signal ended `signal SIGSEGV`."""
    if status is None or status >= 0:
        return f"exit code {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal has a number only
        return f"signal {-status}"
