"""Malformed: what a peer sent cannot be understood, and it is the peer's fault."""

from __future__ import annotations


class Malformed(Exception):
    """The peer broke the rules of its carrier or dialect; it ends in the session and never travels further.

    `reason` is one of a few constant word groups ("bad flags"), fit to be a counter's label. `detail` is a sentence for
    the log: what came, what was expected, what to do about it. Payloads are never quoted in it.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"
