"""The holders of shares: the brokers of a cluster, as the one that grants shares of limits knows them."""

from __future__ import annotations

from typing import Final, final

from dragoman.cluster.peers import Peer
from dragoman.cluster.principal_uses import NOTHING
from dragoman.cluster.records import LimitUse, PrincipalGrant, PrincipalUse, Report
from dragoman.core.infinity import inf

SERVICE: Final = "service"
PRINCIPAL: Final = "principal"
WAITING: Final = "waiting jobs of a principal"
WAITING_BYTES: Final = "bytes of waiting jobs of a principal"

Tenant = tuple[str, str]  # principal and name
Key = tuple[str, str, Tenant | None]  # kind, name, and a tenant if the limit of a service is that of each tenant


@final
class Holder:
    """One run of a broker: its last report, its shares, and their bounds."""

    # fmt: off
    __slots__ = (
        "before", "first", "gone_at", "is_divided", "number", "peer", "principals", "report", "reported_at", "run",
        "sent", "sent_at",
    )
    # fmt: on

    def __init__(self, run: str, peer: Peer | None, first: int) -> None:
        """`peer`: None for this broker. `first`: number of its first grants."""
        self.run = run
        self.peer = peer
        self.first = first
        self.number = 0  # of the last grants that were sent
        self.sent_at = -inf
        self.sent: dict[Key, int] = {}  # its shares, as last sent
        self.before: dict[Key, int] = {}  # its bounds when they were sent
        self.principals: dict[str, PrincipalGrant] = {}  # as last sent; without slots
        self.is_divided = False  # limits have been divided among the brokers, and it has got its part
        self.report: Report | None = None
        self.reported_at = -inf
        self.gone_at = inf

    @property
    def name(self) -> str:
        return self.run.rpartition(".")[0]

    @property
    def is_known(self) -> bool:
        """True if it has answered the first grants, so that its bounds are known."""
        return self.report is not None and self.report.after >= self.first

    @property
    def has_answered(self) -> bool:
        return self.report is not None and (not self.number or self.report.after == self.number)

    def use(self, service: str) -> LimitUse | None:
        return None if self.report is None else self.report.uses.get(service)

    def principal(self, name: str) -> PrincipalUse:
        return NOTHING if self.report is None else self.report.principals.get(name, NOTHING)

    def running(self, key: Key) -> int:
        """Return what it uses now."""
        kind, name, tenant = key
        if kind != SERVICE:
            principal = self.principal(name)
            if kind == PRINCIPAL:
                return principal.running
            return principal.waiting if kind == WAITING else principal.waiting_bytes
        use = self.use(name)
        if use is None:
            return 0
        if tenant is None:
            return use.running
        return sum(each.running for each in use.tenants if (each.principal, each.tenant) == tenant)

    def demand(self, key: Key) -> int:
        kind, name, tenant = key
        if self.gone_at < inf:
            return 0
        if kind == PRINCIPAL:
            return self.principal(name).running + self.principal(name).blocked
        use = self.use(name)
        if use is None:
            return 0
        if tenant is None:
            return use.running + use.waiting
        return sum(each.running + each.waiting for each in use.tenants if (each.principal, each.tenant) == tenant)

    def bound(self, key: Key, implied: int = 0) -> int:
        """Return the most that it may be using. `implied`: its share before the first that was sent."""
        most = max(self.running(key), self.sent.get(key, implied))
        return most if self.has_answered else max(most, self.before.get(key, implied))
