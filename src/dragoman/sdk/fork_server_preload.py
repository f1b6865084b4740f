"""What the fork server imports before it forks children: all that they need of ours, so that they start warm.

To be imported there and nowhere else: SIGTERM to a whole group of processes is for the worker, which will then finish
what its children are at. If the fork server died of it, they would go with it.
"""

from __future__ import annotations

import os
import signal

import dragoman.sdk.child_main
from dragoman.sdk.parent_death import exit_with_parent


def _pass_over(*_: object) -> None:
    """A handler of ours instead of SIG_IGN, which programs that a child starts would inherit."""


signal.signal(signal.SIGTERM, _pass_over)

# A worker that is killed takes us with it, and we our children: they would keep us, and go on with what they are at.
exit_with_parent()
if os.getppid() == 1:
    os._exit(0)

live = dragoman.sdk.child_main.run_child
