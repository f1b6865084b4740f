"""What the fork server imports before it forks children: all that they need of ours, so that they start warm.

To be imported there and nowhere else: SIGTERM to a whole group of processes is for the worker, which will then finish
what its children are at. If the fork server died of it, they would go with it.
"""

from __future__ import annotations

import signal

import dragoman.sdk.childhood


def _pass_over(*_: object) -> None:
    """A handler of ours instead of SIG_IGN, which programs that a child starts would inherit."""


signal.signal(signal.SIGTERM, _pass_over)

live = dragoman.sdk.childhood.live
