"""Accounts of running jobs: of a principal, a tenant or a service, each with a limit.

A queue whose account may run no more jobs is *blocked*: it is taken out of the ring of those that take turns, until the
account may run one again. So a queue that must wait costs nothing.
"""

from __future__ import annotations

from typing import Final

UNLIMITED: Final = 1 << 60  # more jobs than there can be, and compared without a call in compiled code


class Blockable:
    """A queue that can be blocked."""

    __slots__ = ()

    def unblock(self) -> None:
        """Let it take turns again, and remove it from the `blocked` of its account."""
        raise NotImplementedError


class RunningAccount:
    """The number of running jobs of one party, its limit, and the queues that wait because of it."""

    __slots__ = ("blocked", "max_running", "running")

    def __init__(self) -> None:
        self.running = 0  # jobs; `core/lifecycle.py` counts them
        self.max_running = UNLIMITED
        self.blocked: dict[str, Blockable] = {}  # by the service whose queue it is, the longest blocked first
