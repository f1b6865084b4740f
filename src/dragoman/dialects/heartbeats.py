"""Life signs on a connection that we dialled: when the next heartbeat is due, and how long the broker may be silent."""

from __future__ import annotations


class HeartbeatTimers:
    """The times of one connection, in both directions.

    `every`: so many seconds after `said`, the next heartbeat is due. `patience`: so many seconds after `heard`, the
    broker counts as dead. Sums are compared, never differences: a tick at the very instant that `next_due` named must
    find it due.
    """

    __slots__ = ("every", "heard", "patience", "said")

    def __init__(self, every: float, patience: float) -> None:
        self.every = every
        self.patience = patience
        self.heard = 0.0
        self.said = 0.0

    def agree(self, every: float, patience: float) -> None:
        """The broker has said what it wants."""
        self.every = every
        self.patience = patience

    def begin(self, now: float) -> None:
        """The connection is there, or both sides owe a sign again from now on."""
        self.heard = self.said = now

    def is_due(self, now: float) -> bool:
        """Whether it is time for a heartbeat."""
        return now >= self.said + self.every

    def is_silent(self, now: float) -> bool:
        return now >= self.heard + self.patience

    def next_due(self, *, expects: bool = True) -> float:
        """When to look again. `expects`: whether the broker owes us a sign now."""
        due = self.said + self.every
        return min(due, self.heard + self.patience) if expects else due

    @property
    def silence(self) -> str:
        """The reason to give up the connection."""
        return silence(self.patience)


def silence(patience: float) -> str:
    return f"nothing heard from the broker for {patience:g} s"
