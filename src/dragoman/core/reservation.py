"""A reservation: the next attempt of a waiting background job, stored ahead of time."""

from __future__ import annotations

from typing import NewType

Token = NewType("Token", bytes)  # 16 random bytes that name one attempt


class Reservation:
    """The next attempt of a background job that still waits, stored ahead of time (see reservations.py)."""

    __slots__ = ("is_committed", "made", "token")

    def __init__(self, token: Token, now: float) -> None:
        self.token = token
        self.made = now
        self.is_committed = False
