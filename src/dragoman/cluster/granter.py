"""Grants shares of the limits of services to all brokers of the cluster. The owner of shard 0 does it.

For each broker it keeps a *bound*: the most that the broker may be using, whatever has arrived there. The bounds of all
brokers, and the jobs that run without their own broker, never exceed a limit, unless more jobs ran before it was set.

- A broker has at most one unanswered message with shares, and its next report names that message. Until then, its bound
  is the larger one of the old and the new share. After it, the bound is the share, or the running jobs if they are
  more: a share that is taken back frees slots when jobs end.
- At first, every broker gets shares of zero. Nothing is granted until all brokers that are heard have answered that: so
  a new granter knows what runs, and that shares of an earlier one hold no more.
- A service has no shares until every broker has reported it: so every broker knows the limit.
- A broker that is gone keeps its bound until its lease has ended, and until all others have reported since: jobs of it
  that they run count instead.
- Nothing is granted while this broker does not hear its own gossip, so that one that was frozen first hears whether
  another one has taken its place; nor until it has heard the others for as long as a broker may be silent.

A rate has one bucket of tokens for the cluster, with which brokers are supplied in small batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, final

from dragoman.cluster.peers import Peer
from dragoman.cluster.records import Grants, LimitUse, Report, Share, TenantUse
from dragoman.core.broker import Broker
from dragoman.core.infinity import inf
from dragoman.core.service_limits import SMOOTHING, ServiceLimits

ANSWER_EVERY: Final = 0.5  # seconds, if no share changes
ECHO: Final = 0.8  # part of the silence after which a broker is gone; its own gossip is heard at least as often
TURN: Final = 1.0  # seconds after which the remainder of a division goes to another broker

Tenant = tuple[str, str]  # principal and name
Key = tuple[str, Tenant | None]  # service, and a tenant if the limit is that of each tenant


@final
class Holder:
    """One run of a broker: its last report, its shares, and their bounds."""

    __slots__ = ("before", "first", "gone_at", "number", "peer", "report", "reported_at", "run", "sent", "sent_at")

    def __init__(self, run: str, peer: Peer | None, first: int) -> None:
        """`peer`: None for this broker. `first`: number of its first grants."""
        self.run = run
        self.peer = peer
        self.first = first
        self.number = 0  # of the last grants that were sent
        self.sent_at = -inf
        self.sent: dict[Key, int] = {}  # its shares, as last sent
        self.before: dict[Key, int] = {}  # its bounds when they were sent
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

    def running(self, key: Key) -> int:
        service, tenant = key
        use = self.use(service)
        if use is None:
            return 0
        if tenant is None:
            return use.running
        return sum(each.running for each in use.tenants if (each.principal, each.tenant) == tenant)

    def demand(self, key: Key) -> int:
        service, tenant = key
        use = self.use(service)
        if use is None or self.gone_at < inf:
            return 0
        if tenant is None:
            return use.running + use.waiting
        return sum(each.running + each.waiting for each in use.tenants if (each.principal, each.tenant) == tenant)

    def bound(self, key: Key) -> int:
        most = max(self.running(key), self.sent.get(key, 0))
        return most if self.has_answered else max(most, self.before.get(key, 0))


@final
class Granter:
    """Knows what each broker holds, while this one grants shares."""

    def __init__(
        self,
        broker: Broker,
        run: str,
        peers: dict[str, Peer],
        gone_after: float,
        send: Callable[[Peer | None, Grants, float], None],
    ) -> None:
        self._broker = broker
        self._run = run
        self._peers = peers
        self._gone_after = gone_after
        self._send = send
        self._number = 0  # of the last grants, to anybody
        self._holders: dict[str, Holder] = {}
        self._buckets: dict[str, float] = {}  # by service, the time from which its rate allows a start
        self._began = inf
        self.listens_from = inf  # time since which it has heard all others
        self.connected_at = inf
        self.echoed_at = -inf  # time at which the last of its own gossip that it has heard was sent

    # ---------------------------------------------------------------- events

    def begin(self, now: float) -> None:
        """Grant shares from now on: this broker has shard 0."""
        self._began = now
        self._holders.clear()
        self._buckets.clear()

    def stop(self) -> None:
        self._began = inf
        self._holders.clear()

    def gone(self, run: str, now: float) -> None:
        holder = self._holders.get(run)
        if holder is not None:
            holder.gone_at = min(holder.gone_at, now)

    def reported(self, run: str, peer: Peer | None, report: Report, now: float) -> None:
        """Take what a broker uses."""
        holder = self._holders.get(run)
        if holder is None or holder.gone_at < inf:
            holder = self._add(run, peer)
        holder.report, holder.reported_at = report, now
        for name, use in report.uses.items():
            limits = self._limits(name)
            if use.returned and limits is not None and name in self._buckets:
                self._buckets[name] -= use.returned * limits.interval

    def _add(self, run: str, peer: Peer | None) -> Holder:
        self._number += 1
        holder = self._holders[run] = Holder(run, peer, self._number)
        return holder

    # ---------------------------------------------------------------- decisions

    def tick(self, now: float) -> float:
        """Send shares that have changed, and answers that are due. Returns the time of the next call."""
        for peer in self._peers.values():
            run = f"{peer.name}.{peer.incarnation}"
            if run not in self._holders:
                self._add(run, peer)
        if not self._may_grant(now):
            return now + 0.1
        self._forget_gone(now)
        present = [each for each in self._holders.values() if each.gone_at == inf]
        shares = {each.run: each.sent for each in present}
        tokens: dict[str, dict[str, int]] = {}
        if all(each.is_known for each in present):
            shares, tokens = self._divide(present, now)
        for each in present:
            self._answer(each, shares[each.run], tokens.get(each.run, {}), now)
        return min([now + ANSWER_EVERY, *(at for at in self._buckets.values() if at > now)])

    def _may_grant(self, now: float) -> bool:
        is_heard = self.echoed_at >= now - ECHO * self._gone_after
        return is_heard and now >= max(self.listens_from + self._gone_after, self.connected_at)

    def _forget_gone(self, now: float) -> None:
        """Free the shares of brokers that are gone, if that is certain."""
        if now < self.connected_at + self._gone_after:
            return  # others may have been away as long as this one
        present = [each for each in self._holders.values() if each.gone_at == inf]
        for holder in list(self._holders.values()):
            if holder.gone_at == inf or now < holder.reported_at + self._gone_after:
                continue
            if all(each.reported_at > holder.gone_at for each in present):
                del self._holders[holder.run]

    def _answer(self, holder: Holder, shares: dict[Key, int], tokens: dict[str, int], now: float) -> None:
        report = holder.report
        if report is None or not holder.has_answered:
            return
        if shares == holder.sent and not tokens and holder.number and now < holder.sent_at + ANSWER_EVERY:
            return
        holder.before = {key: holder.bound(key) for key in holder.sent}
        holder.sent, holder.sent_at = shares, now
        if not holder.number:
            holder.number = holder.first
        else:
            self._number += 1
            holder.number = self._number
        names = {service: None for service, _ in shares} | dict.fromkeys(tokens)
        made = {name: self._share(name, shares, tokens.get(name, 0)) for name in names}
        self._send(holder.peer, Grants(holder.number, report.number, made), now)

    def _share(self, service: str, shares: dict[Key, int], tokens: int) -> Share:
        tenants = [
            TenantUse(tenant[0], tenant[1], count)
            for (name, tenant), count in shares.items()
            if name == service and tenant is not None
        ]
        running = {each.name: each.running((service, None)) for each in self._holders.values()}
        return Share(shares.get((service, None), 0), tokens, tenants, running)

    # ---------------------------------------------------------------- division

    def _divide(self, present: list[Holder], now: float) -> tuple[dict[str, dict[Key, int]], dict[str, dict[str, int]]]:
        """Return the shares and the new tokens of each broker."""
        shares: dict[str, dict[Key, int]] = {each.run: {} for each in present}
        tokens: dict[str, dict[str, int]] = {}
        for name, service in self._broker.limiter.limited.items():
            limits = service.limits
            if limits is None or limits.setting.is_empty:
                continue
            is_reported = all(each.use(name) is not None for each in present)
            for key, most in self._keys(name, limits, present):
                if is_reported:
                    self._divide_one(key, most, present, shares, now)
                else:
                    for each in present:
                        shares[each.run][key] = min(each.sent.get(key, 0), most)
            if limits.interval and is_reported:
                self._supply(name, limits, present, shares, tokens, now)
        return shares, tokens

    def _keys(self, name: str, limits: ServiceLimits, present: list[Holder]) -> list[tuple[Key, int]]:
        setting = limits.setting
        keys: list[tuple[Key, int]] = [((name, None), setting.max_running or 0)]
        if setting.max_running_per_tenant:
            tenants: dict[Tenant, None] = {}
            for holder in present:
                use = holder.use(name)
                for each in use.tenants if use is not None else ():
                    tenants[each.principal, each.tenant] = None
            keys += [((name, tenant), setting.max_running_per_tenant) for tenant in tenants]
        return keys

    def _divide_one(
        self, key: Key, most: int, present: list[Holder], shares: dict[str, dict[Key, int]], now: float
    ) -> None:
        """Divide one limit. A share grows only by what is free, and one that shrinks frees it when that is certain."""
        orphans = self._orphans(key)
        everybody = self._holders.values()
        free = most - orphans - sum(each.bound(key) for each in everybody)
        wanted = fair_shares(max(0, most - orphans), [each.demand(key) for each in present], int(now / TURN))
        if key[1] is None:  # nobody has asked for the rest: it is there for the next job of each broker
            spare = max(0, most - orphans - sum(wanted)) // len(present)
            wanted = [each + spare for each in wanted]
        for holder, share in zip(present, wanted, strict=True):
            bound = holder.bound(key)
            if not holder.has_answered:
                share = holder.sent.get(key, 0)
            elif share > bound:
                more = max(0, min(share - bound, free))
                free -= more
                share = bound + more
            shares[holder.run][key] = share

    def _orphans(self, key: Key) -> int:
        """Return the jobs that run at some broker, and whose own broker is gone."""
        service, tenant = key
        count = 0
        for holder in self._holders.values():
            use = holder.use(service)
            for run, taken in use.taken.items() if use is not None else ():
                if run not in self._holders:
                    count += sum(each.running for each in taken if tenant in (None, (each.principal, each.tenant)))
        return count

    # ---------------------------------------------------------------- rates

    def _supply(
        self,
        name: str,
        limits: ServiceLimits,
        present: list[Holder],
        shares: dict[str, dict[Key, int]],
        tokens: dict[str, dict[str, int]],
        now: float,
    ) -> None:
        """Hand out the starts that the rate allows by now to brokers whose jobs wait."""
        interval = limits.interval
        next_start = max(self._buckets.get(name, now + interval), now - SMOOTHING)
        if name not in self._buckets:
            self._buckets[name] = next_start
        if next_start > now:
            return
        available = int((now - next_start) / interval) + 1
        batch = max(1, int(SMOOTHING / interval))
        wanted = []
        for holder in present:
            use = holder.use(name)
            assert use is not None
            most = min(use.waiting, batch)
            if limits.setting.max_running:
                most = min(most, shares[holder.run][name, None] - use.running)
            wanted.append(max(0, most - use.tokens) if holder.has_answered else 0)
        given = fair_shares(available, wanted, int(now / TURN))
        for holder, count in zip(present, given, strict=True):
            if count:
                tokens.setdefault(holder.run, {})[name] = count
        self._buckets[name] = next_start + sum(given) * interval

    def _limits(self, service: str) -> ServiceLimits | None:
        found = self._broker.limiter.limited.get(service)
        return None if found is None else found.limits


def fair_shares(total: int, demands: Iterable[int], turn: int) -> list[int]:
    """Divide a number: everybody gets what they demand, or as much as everybody else who demands more. `turn`: who
    gets one more if it cannot be divided."""
    demands = list(demands)
    shares = [0] * len(demands)
    left = total
    open_ = [index for index, each in enumerate(demands) if each > 0]
    while open_ and left >= len(open_):
        each_gets = min(left // len(open_), min(demands[index] - shares[index] for index in open_))
        for index in open_:
            shares[index] += each_gets
        left -= each_gets * len(open_)
        open_ = [index for index in open_ if shares[index] < demands[index]]
    if open_:
        first = turn % len(open_)
        for index in (open_[first:] + open_[:first])[:left]:
            shares[index] += 1
    return shares
