"""Divides the limits of principals among brokers, except `max_running`: `granter.py` divides that as for services.

- A rate is divided by the submits that callers try at each broker. What nobody asks for goes to the brokers that have
  been used lately, so that a caller of one broker has nearly all of it; a small part is there for every broker.
- Waiting jobs and their bytes are counted. What is left is divided among the brokers at which the principal is
  connected, or has jobs that wait, so that submits at several brokers in the same moment do not exceed the limit. A
  batch may use all that is left.
- Connections are counted: each broker may use what the others leave.

A principal that uses nothing is forgotten after `LINGER`.
"""

from __future__ import annotations

from typing import Final, final

from dragoman.cluster.records import PrincipalGrant, PrincipalUse
from dragoman.core.infinity import inf
from dragoman.core.rights import PrincipalLimits

LINGER: Final = 60.0  # seconds
UNITS: Final = 10_000  # of a rate
EXCESS: Final = 20  # parts of what is left exceed it by this part of the limit, as the brokers may need them unequally
RESERVED: Final = 500  # of these units, which all brokers have in equal parts


@final
class ActivePrincipal:
    """A principal that uses something of its limits at some broker, or did so lately."""

    __slots__ = ("submitted_at", "used_at")

    def __init__(self, now: float) -> None:
        self.used_at = now
        self.submitted_at: dict[str, float] = {}  # by run of a broker


@final
class ActivePrincipals:
    """The principals whose limits are divided."""

    def __init__(self) -> None:
        self._active: dict[str, ActivePrincipal] = {}

    def clear(self) -> None:
        self._active.clear()

    def reported(self, run: str, uses: dict[str, PrincipalUse], now: float) -> None:
        """Take what principals use at one broker."""
        for name, use in uses.items():
            active = self._active.get(name)
            if active is None:
                active = self._active[name] = ActivePrincipal(now)
            active.used_at = now
            if use.submits:
                active.submitted_at[run] = now

    def gone(self, run: str) -> None:
        for active in self._active.values():
            active.submitted_at.pop(run, None)

    def names(self, now: float) -> list[str]:
        """Return the principals. Those that have used nothing for a while are forgotten."""
        for name in [name for name, each in self._active.items() if each.used_at < now - LINGER]:
            del self._active[name]
        return list(self._active)

    def divide(
        self, name: str, limits: PrincipalLimits, present: dict[str, PrincipalUse], gone: list[PrincipalUse], now: float
    ) -> dict[str, PrincipalGrant]:
        """Return what each broker may use of the limits of a principal, without slots. `present`: the use at brokers
        by their run. `gone`: the use at brokers that are gone, and still count."""
        active, uses = self._active[name], list(present.values())
        is_recent = [active.submitted_at.get(run, -inf) > now - LINGER for run in present]
        rates = divide_rate([each.submits for each in uses], is_recent)
        left = _left(limits.shared_waiting, [each.waiting for each in (*uses, *gone)])
        left_bytes = _left(limits.max_waiting_bytes, [each.waiting_bytes for each in (*uses, *gone)])
        left_peers = _left(limits.max_peers, [each.peers for each in (*uses, *gone)])
        users = max(1, len([each for each in uses if each.is_here]))
        rate = limits.max_rate or 0.0
        grants: dict[str, PrincipalGrant] = {}
        for (run, use), units in zip(present.items(), rates, strict=True):
            parts = users if use.is_here else len(uses)
            grants[run] = PrincipalGrant(
                0,
                rate * units / UNITS,
                use.waiting + _part(limits.shared_waiting, left, parts),
                use.waiting_bytes + _part(limits.max_waiting_bytes, left_bytes, parts),
                use.waiting + left,
                use.waiting_bytes + left_bytes,
                use.peers + left_peers,
                {},
            )
        return grants


def divide_rate(tenths: list[int], is_recent: list[bool]) -> list[int]:
    """Return the part of each broker in `UNITS`. `is_recent`: it has been used lately."""
    count = len(tenths)
    reserved = RESERVED // count if any(is_recent) else 0
    total = UNITS - reserved * count
    wanted = _fair([each * UNITS // 10 for each in tenths], total)
    heirs = is_recent if any(is_recent) else [True] * count
    spare = (total - sum(wanted)) // sum(heirs)
    return [reserved + each + (spare if has_part else 0) for each, has_part in zip(wanted, heirs, strict=True)]


def _fair(demands: list[int], total: int) -> list[int]:
    """Divide a number: the smallest demands are met first, and the others get equal parts."""
    shares = [0] * len(demands)
    order = sorted(range(len(demands)), key=lambda index: demands[index])
    for position, index in enumerate(order):
        shares[index] = min(demands[index], total // (len(order) - position))
        total -= shares[index]
    return shares


def _part(limit: int | None, left: int, parts: int) -> int:
    """Return the part of one broker of what is left, and a little more."""
    return 0 if limit is None else min(left, -(-left // parts) + limit // (EXCESS * parts))


def _left(limit: int | None, counts: list[int]) -> int:
    return 0 if limit is None else max(0, limit - sum(counts))
