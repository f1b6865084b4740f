"""Malformed: the error for bytes or messages that break the rules of a carrier or dialect."""

from __future__ import annotations


class Malformed(Exception):
    """The peer broke the rules of its carrier or dialect. The broker side handles it and never passes it on.

    `reason` is one of a few constant phrases ("bad flags"), used as a counter's label. `detail` is a sentence for the
    log: the value, the allowed values, and what to do. It never quotes payloads. `identity` is the public key, or the
    hash of the password, of a peer that is unknown.
    """

    def __init__(self, reason: str, detail: str, identity: bytes = b"") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail
        self.identity = identity

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"
