"""Shares: the places of a table that all principals use, so that none of them shuts out the others (R254).

One place in 16 is reserved for administrators. Of the others, a holder gets one more only while it has fewer than are
left free: alone, it stops at half of them, two stop at a third each, and a newcomer always finds a place. Neither the
number of holders nor their order has to be known for this. What is taken is never taken away.

A holder is a principal. Of `anyone`, who proves nothing, each address is one. An administrator may use all places: it
may do everything anyway, and `local`, the only principal of a broker without an access folder, is one.
"""

from __future__ import annotations

from typing import Final, final

from dragoman.core.model import Service
from dragoman.core.owners import Owner
from dragoman.core.rights import ANYONE, Principal

RESERVED: Final = 16  # one place in this number is for administrators


def administers(principal: Principal) -> bool:
    """Tell if the reserve is for this principal. `anyone` proves nothing, whatever it may do."""
    return principal.rights.administers_all and principal.name != ANYONE


def holder_of(principal: Principal, address: str = "") -> str:
    """Return the holder to which a place counts. No principal has a name with a space."""
    return f"{ANYONE} {address}" if principal.name == ANYONE and address else principal.name


def has_share(most: int, taken: int, held: int, size: int, *, is_administrator: bool) -> bool:
    """Tell if a holder with `held` places gets `size` more, of a table of `most` of which `taken` are in use."""
    if is_administrator:
        return taken + size <= most
    return held + size <= most - most // RESERVED - taken


def share_problem(name: str, held: int, taken: int, most: int, things: str, limit: str) -> str:
    """Return the sentence about a holder that gets no more. `limit`: the name of the setting; empty: it is fixed."""
    reason = f" ({limit})" if limit else ""
    if taken >= most:
        return f"there are {taken} {things}, the maximum{reason}"
    return (
        f"{name} has {held} of {taken} {things}, and at most {most} are allowed{reason}: one principal may have no "
        "more than are left free for others"
    )


def share_mark(most: int) -> int:
    """Return how full a table must be before a holder can be over its share: it has at most what is taken, and so not
    more than is left free."""
    return (most - most // RESERVED) // 2


def has_queue_share(service: Service, most: int, principal: Principal, more: int = 0) -> bool:
    """Tell if one more job of a principal may wait for a service (R254). `more`: its jobs that are about to."""
    queue, own = service.queue, service.queue.members.get(principal.name)
    held = 0 if own is None else own.length
    return has_share(most, queue.length + more, held + more, 1, is_administrator=administers(principal))


@final
class Shares:
    """The places of one table, counted for each holder."""

    __slots__ = ("_held", "most", "taken")

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self._held: dict[str, int] = {}

    def allows(self, owner: Owner, size: int = 1, most: int = -1) -> bool:
        """Tell if an owner gets more places. `most`: the part of the table that this use may fill."""
        principal = owner.principal
        return self.allows_holder(
            holder_of(principal, owner.address), size, most, is_administrator=administers(principal)
        )

    def allows_holder(self, holder: str, size: int = 1, most: int = -1, *, is_administrator: bool = False) -> bool:
        if most < 0:
            most = self.most
        elif is_administrator:
            most = min(self.most, most + self.most // RESERVED)
        return has_share(most, self.taken, self._held.get(holder, 0), size, is_administrator=is_administrator)

    def enter(self, holder: str, size: int = 1) -> None:
        """Count places that were taken; without a check, because those of an earlier run are taken, too."""
        self.taken += size
        self._held[holder] = self._held.get(holder, 0) + size

    def leave(self, holder: str, size: int = 1) -> None:
        """Undo `enter`, with the same holder: the principal of a connection may change."""
        self.taken -= size
        left = self._held[holder] - size
        if left:
            self._held[holder] = left
        else:
            del self._held[holder]

    def held(self, holder: str) -> int:
        return self._held.get(holder, 0)

    def fullest(self) -> str:
        """Return the holder with the most places: a table that drops the oldest entry drops one of it."""
        return max(self._held, key=self.held)

    def problem(self, owner: Owner, things: str, limit: str) -> str:
        """Return the sentence about an owner that gets no more places."""
        held = self.held(holder_of(owner.principal, owner.address))
        return share_problem(owner.principal.name, held, self.taken, self.most, things, limit)
