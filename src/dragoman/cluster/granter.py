"""Grants shares of the limits of services and principals to all brokers of the cluster. The owner of shard 0 does it.

For each broker it keeps a *bound*: the most that the broker may be using, whatever has arrived there. The bounds of all
brokers, and the jobs that run without their own broker, never exceed a limit, unless more jobs ran before it was set.

- A broker has at most one unanswered message with shares, and its next report names that message. Until then, its bound
  is the larger one of the old and the new share. After it, the bound is the share, or the running jobs if they are
  more: a share that is taken back frees slots when jobs end.
- At first, every broker gets shares of zero. Nothing is granted until all brokers that are heard have answered that: so
  a new granter knows what runs, and that shares of an earlier one hold no more.
- A service has no shares until every broker has reported it: so every broker knows the limit. A principal has the same
  limit in all access tables, or its broker has heard the lowest one (`access_tables.py`); it is reported if it uses
  something.
- A broker that is gone keeps its bound until its lease has ended, and until all others have reported since: jobs of it
  that they run count instead.
- Nothing is granted while this broker does not hear its own gossip, so that one that was frozen first hears whether
  another one has taken its place; nor until it has heard the others for as long as a broker may be silent.

A rate of a service has one bucket of tokens for the cluster, with which brokers are supplied in small batches. Rates of
principals, their connections, and what may wait are divided in `principal_grants.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, final

from msgspec.structs import replace

from dragoman.cluster.peers import Peer
from dragoman.cluster.principal_grants import EXCESS, ActivePrincipals
from dragoman.cluster.records import Grants, PrincipalGrant, Report, Share, TenantUse
from dragoman.cluster.share_holders import PRINCIPAL, SERVICE, WAITING, WAITING_BYTES, Holder, Key, Tenant
from dragoman.core.broker import Broker
from dragoman.core.infinity import inf
from dragoman.core.service_limits import SMOOTHING, ServiceLimits

ANSWER_EVERY: Final = 0.5  # seconds, if no share changes
ECHO: Final = 0.8  # part of the silence after which a broker is gone; its own gossip is heard at least as often
TURN: Final = 1.0  # seconds after which the remainder of a division goes to another broker


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
        self._principals = ActivePrincipals()
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
        self._principals.clear()

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
        self._principals.reported(run, report.principals, now)
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
        principals: dict[str, dict[str, PrincipalGrant]] = {each.run: each.principals for each in present}
        if all(each.is_known for each in present):
            shares, tokens = self._divide(present, now)
            principals = self._divide_principals(present, shares, now)
            for each in present:
                each.is_divided = True
        for each in present:
            self._answer(each, shares[each.run], tokens.get(each.run, {}), principals[each.run], now)
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
                self._principals.gone(holder.run)

    def _answer(
        self,
        holder: Holder,
        shares: dict[Key, int],
        tokens: dict[str, int],
        principals: dict[str, PrincipalGrant],
        now: float,
    ) -> None:
        report = holder.report
        if report is None or not holder.has_answered:
            return
        is_same = shares == holder.sent and not tokens and principals == holder.principals
        if is_same and holder.number and now < holder.sent_at + ANSWER_EVERY:
            return
        holder.before = {key: holder.bound(key) for key in holder.sent}
        holder.sent, holder.principals, holder.sent_at = shares, principals, now
        if not holder.number:
            holder.number = holder.first
        else:
            self._number += 1
            holder.number = self._number
        names = {name: None for kind, name, _ in shares if kind == SERVICE} | dict.fromkeys(tokens)
        made = {name: self._share(name, shares, tokens.get(name, 0)) for name in names}
        granted = {name: self._grant(name, each, shares) for name, each in principals.items()}
        self._send(holder.peer, Grants(holder.number, report.number, made, granted, holder.is_divided), now)

    def _share(self, service: str, shares: dict[Key, int], tokens: int) -> Share:
        tenants = [
            TenantUse(tenant[0], tenant[1], count)
            for (kind, name, tenant), count in shares.items()
            if kind == SERVICE and name == service and tenant is not None
        ]
        key: Key = (SERVICE, service, None)
        return Share(shares.get(key, 0), tokens, tenants, self._running(key))

    def _grant(self, principal: str, grant: PrincipalGrant, shares: dict[Key, int]) -> PrincipalGrant:
        key: Key = (PRINCIPAL, principal, None)
        running = {broker: count for broker, count in self._running(key).items() if count}
        return replace(
            grant,
            slots=shares.get(key, 0),
            waiting=shares.get((WAITING, principal, None), 0),
            waiting_bytes=shares.get((WAITING_BYTES, principal, None), 0),
            running=running,
        )

    def _running(self, key: Key) -> dict[str, int]:
        return {each.name: each.running(key) for each in self._holders.values()}

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
        keys: list[tuple[Key, int]] = [((SERVICE, name, None), setting.max_running or 0)]
        if setting.max_running_per_tenant:
            tenants: dict[Tenant, None] = {}
            for holder in present:
                use = holder.use(name)
                for each in use.tenants if use is not None else ():
                    tenants[each.principal, each.tenant] = None
            keys += [((SERVICE, name, tenant), setting.max_running_per_tenant) for tenant in tenants]
        return keys

    def _divide_principals(
        self, present: list[Holder], shares: dict[str, dict[Key, int]], now: float
    ) -> dict[str, dict[str, PrincipalGrant]]:
        """Return the grants of each broker, and add what is not in them to the shares: slots, and what may wait."""
        grants: dict[str, dict[str, PrincipalGrant]] = {each.run: {} for each in present}
        gone = [each for each in self._holders.values() if each.gone_at < inf]
        for name in self._principals.names(now):
            principal = self._broker.principals.shared.get(name)
            if principal is None:
                continue  # it has no limits any more
            limits = principal.limits
            if limits.max_running is not None:
                self._divide_one((PRINCIPAL, name, None), limits.max_running, present, shares, now)
            uses = {each.run: each.principal(name) for each in present}
            made = self._principals.divide(name, limits, uses, [each.principal(name) for each in gone], now)
            for run, grant in made.items():
                grants[run][name] = grant
            waiting, waiting_bytes = limits.shared_waiting, limits.max_waiting_bytes
            if waiting is not None:
                wanted = {run: grant.waiting for run, grant in made.items()}
                self._divide_waiting((WAITING, name, None), waiting, wanted, present, shares)
            if waiting_bytes is not None:
                wanted = {run: grant.waiting_bytes for run, grant in made.items()}
                self._divide_waiting((WAITING_BYTES, name, None), waiting_bytes, wanted, present, shares)
        return grants

    def _divide_waiting(
        self,
        key: Key,
        limit: int,
        wanted: dict[str, int],
        present: list[Holder],
        shares: dict[str, dict[Key, int]],
    ) -> None:
        """Divide what may wait among the brokers where the principal is. The others are not expected to use theirs."""
        users = [each for each in present if each.principal(key[1]).is_here]
        implied = -(-limit // len(present))  # as in principal_uses.py
        others = sum(each.running(key) for each in self._holders.values() if each not in users)
        free = limit + limit // EXCESS - others - sum(each.bound(key, implied) for each in users)
        for each in present:
            shares[each.run][key] = wanted[each.run]
        self._grow(key, free, [wanted[each.run] for each in users], users, shares, implied)

    def _divide_one(
        self, key: Key, most: int, present: list[Holder], shares: dict[str, dict[Key, int]], now: float
    ) -> None:
        """Divide one limit of running jobs."""
        orphans = self._orphans(key)
        everybody = self._holders.values()
        free = most - orphans - sum(each.bound(key) for each in everybody)
        wanted = fair_shares(max(0, most - orphans), [each.demand(key) for each in present], int(now / TURN))
        if key[2] is None:  # nobody has asked for the rest: it is there for the next job of each broker
            spare = max(0, most - orphans - sum(wanted)) // len(present)
            wanted = [each + spare for each in wanted]
        if free < 0:  # a share that grows to what runs there would let other jobs follow these
            wanted = [min(each, holder.sent.get(key, 0)) for each, holder in zip(wanted, present, strict=True)]
        self._grow(key, free, wanted, present, shares)

    def _grow(
        self,
        key: Key,
        free: int,
        wanted: list[int],
        holders: list[Holder],
        shares: dict[str, dict[Key, int]],
        implied: int = 0,
    ) -> None:
        """Set shares. One grows only by what is free, and one that shrinks frees it when that is certain."""
        for holder, share in zip(holders, wanted, strict=True):
            bound = holder.bound(key, implied)
            if not holder.has_answered:
                share = holder.sent.get(key, implied)
            elif share > bound:
                more = max(0, min(share - bound, free))
                free -= more
                share = bound + more
            shares[holder.run][key] = share

    def _orphans(self, key: Key) -> int:
        """Return the jobs that run at some broker, and whose own broker is gone."""
        kind, name, tenant = key
        count = 0
        if kind == PRINCIPAL:
            for holder in self._holders.values():
                taken_from = holder.principal(name).taken
                count += sum(each for run, each in taken_from.items() if run not in self._holders)
            return count
        for holder in self._holders.values():
            use = holder.use(name)
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
                most = min(most, shares[holder.run][SERVICE, name, None] - use.running)
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
