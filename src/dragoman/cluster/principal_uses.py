"""The use of principals' limits at this broker, and the shares of them that it has received.

Only principals with limits are looked at, and only those that use something of a limit are reported. Numbers that
change with every job are rounded, so that a report is sent when it matters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from dragoman.cluster.records import Grants, PrincipalGrant, PrincipalUse
from dragoman.core.broker import Broker
from dragoman.core.infinity import inf
from dragoman.core.queues import Waiting
from dragoman.core.rights import Principal

SMOOTHED: Final = 1.0  # seconds over which submits are averaged
TENTHS: Final = 10
PRECISION: Final = 20  # waiting jobs of all brokers together are known to this part of the limit
NOTHING: Final = PrincipalUse(0, 0, 0, 0, 0, 0, {})


@final
class SubmitRate:
    """The submits a second of one principal at this broker, averaged."""

    __slots__ = ("_at", "_seen", "_value")

    def __init__(self) -> None:
        self._at = -inf
        self._seen = 0
        self._value = 0.0

    def measure(self, submits: int, now: float) -> float:
        """Return the average. `submits`: their number so far."""
        passed = now - self._at
        if passed > 0.0:
            part = min(1.0, passed / SMOOTHED)
            present = (submits - self._seen) / max(passed, 0.001) if self._at != -inf else float(submits)
            self._value += part * (present - self._value)
            self._at, self._seen = now, submits
        return self._value


@final
class PrincipalUses:
    """Measures what principals use, and applies grants."""

    def __init__(self, broker: Broker) -> None:
        broker.principals.share()
        broker.dispatch.shared_principals = self._shared = broker.principals.shared
        self._broker = broker
        self._rates: dict[str, SubmitRate] = {}
        self._brokers = 1  # by which a limit is divided without a grant

    @property
    def count(self) -> int:
        """The number of principals with shared limits."""
        return len(self._shared)

    # ---------------------------------------------------------------- reports

    def present(
        self, taken: dict[str, dict[str, int]], moved: Iterable[str], brokers: int, now: float
    ) -> dict[str, PrincipalUse]:
        """Return what each principal uses. `taken`: jobs of other brokers that run here, by principal and run, if
        their broker is not gone. `moved`: principals of running jobs that have moved, and still count here."""
        uses: dict[str, PrincipalUse] = {}
        by_moved: dict[str, int] = {}
        for name in moved:
            by_moved[name] = by_moved.get(name, 0) + 1
        for name, principal in self._shared.items():
            use = self._use(principal, taken.get(name, {}), by_moved.get(name, 0), brokers, now)
            if use != NOTHING:
                uses[name] = use
        return uses

    def _use(self, principal: Principal, by_run: dict[str, int], moved: int, brokers: int, now: float) -> PrincipalUse:
        limits = principal.limits
        running = blocked = 0
        taken: dict[str, int] = {}
        if limits.max_running is not None:
            running = principal.running + moved
            if principal.blocked:
                waiting = sum(each.length for each in principal.blocked.values() if isinstance(each, Waiting))
                blocked = min(waiting, limits.max_running)
            if principal.taken:
                orphans = principal.taken - sum(by_run.values())
                taken = {**by_run, "": orphans} if orphans > 0 else by_run
        return PrincipalUse(
            running,
            blocked,
            self._submits(principal, limits.max_rate, now) if limits.max_rate is not None else 0,
            _rounded(principal.waiting, limits.shared_waiting, brokers),
            _rounded(principal.waiting_bytes, limits.max_waiting_bytes, brokers),
            principal.peers if limits.max_peers is not None else 0,
            taken,
            limits.limit_waiting and (principal.peers > 0 or principal.waiting > 0),
        )

    def _submits(self, principal: Principal, most: float, now: float) -> int:
        """Return the submits of its callers in tenths of the rate, one more than they use now."""
        rate = self._rates.get(principal.name)
        if rate is None:
            if not principal.submits:
                return 0
            rate = self._rates[principal.name] = SubmitRate()
        tenths = int(TENTHS * rate.measure(principal.submits, now) / most + 0.9)
        return min(TENTHS, tenths + 1) if tenths else 0

    # ---------------------------------------------------------------- grants

    def granted(self, grants: Grants, brokers: int, now: float) -> None:
        """Take new shares. A principal that is missing uses nothing at any broker."""
        if not grants.is_divided:
            for principal in self._shared.values():
                principal.suspend()
            return
        self._brokers = self._broker.principals.brokers = brokers
        for name, principal in list(self._shared.items()):
            self._apply(principal, grants.principals.get(name), brokers, now)

    def _apply(self, principal: Principal, grant: PrincipalGrant | None, brokers: int, now: float) -> None:
        share, limits = principal.share, principal.limits
        assert share is not None
        share.parts = self._brokers
        share.is_granted = True
        if grant is not None:
            share.slots, share.rate, share.running = grant.slots, grant.rate, grant.running
            share.waiting, share.waiting_bytes, share.peers = grant.waiting, grant.waiting_bytes, grant.peers
            share.batch, share.batch_bytes = grant.batch, grant.batch_bytes
        else:
            share.slots, share.rate, share.running = 0, 0.0, {}
            share.batch, share.batch_bytes = limits.max_waiting or 0, limits.max_waiting_bytes or 0
            share.waiting, share.waiting_bytes = _part(share.batch, brokers), _part(share.batch_bytes, brokers)
            share.peers = limits.max_peers or 0
        principal.update_limits()
        if principal.blocked:
            self._broker.dispatch.unblock(principal, now)

    def count_brokers(self, brokers: int) -> None:
        """Divide limits by this number of brokers while there is no grant, if it is higher than before: a broker that
        is cut off hears nobody, and there are as many as before."""
        if brokers > self._brokers:
            self._brokers = self._broker.principals.brokers = brokers
            for principal in self._shared.values():
                assert principal.share is not None
                principal.share.parts = brokers
                principal.update_limits()


def _part(count: int, brokers: int) -> int:
    return -(-count // brokers)


def _rounded(count: int, limit: int | None, brokers: int) -> int:
    """Return a count rounded down, so that all brokers together leave out at most a part of the limit."""
    if limit is None:
        return 0
    step = limit // (PRECISION * brokers)
    return count - count % step if step > 1 else count
