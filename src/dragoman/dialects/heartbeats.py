"""Heartbeats on an outgoing connection: the time of the next one, and the allowed silence of the broker."""

from __future__ import annotations


class HeartbeatTimers:
    """Heartbeat times of one connection, in both directions.

    `interval`: seconds from `sent_at` to the next heartbeat. `timeout`: seconds from `received_at` after which the
    broker counts as dead. Sums are compared, never differences: a tick at exactly the time that `next_due` returned
    must find the heartbeat due.
    """

    __slots__ = ("interval", "received_at", "sent_at", "timeout")

    def __init__(self, interval: float, timeout: float) -> None:
        self.interval = interval
        self.timeout = timeout
        self.received_at = 0.0
        self.sent_at = 0.0

    def set_times(self, interval: float, timeout: float) -> None:
        """Replace both times by those that the broker requested."""
        self.interval = interval
        self.timeout = timeout

    def restart(self, now: float) -> None:
        """Count from now: the connection has opened, or a job has ended."""
        self.received_at = self.sent_at = now

    def is_due(self, now: float) -> bool:
        """Tell if a heartbeat must be sent."""
        return now >= self.sent_at + self.interval

    def is_silent(self, now: float) -> bool:
        return now >= self.received_at + self.timeout

    def next_due(self, *, expects: bool = True) -> float:
        """Return the time of the next check. `expects`: the broker must send something before its time-out."""
        due = self.sent_at + self.interval
        return min(due, self.received_at + self.timeout) if expects else due

    @property
    def silence(self) -> str:
        """Reason for closing the connection."""
        return silence(self.timeout)


def silence(timeout: float) -> str:
    return f"nothing received from the broker for {timeout:g} s"
