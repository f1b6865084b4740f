"""Modules that the fork server preloads, so that child processes start quickly.

Import this module only there: it ignores SIGTERM. When SIGTERM is sent to the whole process group, the worker finishes
the jobs of its child processes; if the fork server ended, they would end with it.
"""

from __future__ import annotations

import os
import signal

import dragoman.sdk.child_main
from dragoman.sdk.parent_death import exit_with_parent


def _ignore(*_: object) -> None:
    """Ignore SIGTERM. Unlike SIG_IGN, a handler is not inherited by programs that a child process starts."""


signal.signal(signal.SIGTERM, _ignore)

# If the worker is killed, the fork server ends, and its child processes with it; otherwise they would keep it alive and
# go on with their jobs.
exit_with_parent()
if os.getppid() == 1:
    os._exit(0)

run_child = dragoman.sdk.child_main.run_child
