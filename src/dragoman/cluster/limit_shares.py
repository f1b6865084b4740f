"""This broker's shares of the limits of services and principals, which hold for all brokers of the cluster together.

One broker, the owner of shard 0, grants shares (`granter.py`). Each broker reports what it uses and what waits: when
that changes, and at least every `REPORT_EVERY`. It may use its shares for `lease` seconds after it sent the last report
that was answered. Then it starts nothing more of a service with limits, or of a principal with `max_running`, until it
has shares again; jobs that run continue. The granter keeps the shares of a silent broker for longer than that.

A job counts at the broker that owns it, wherever it runs. A job whose owner is gone counts at the broker whose worker
runs it. While neither services nor principals have limits, nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from dragoman.cluster.granter import Granter
from dragoman.cluster.moved_attempts import MovedAttempts, Owner
from dragoman.cluster.peers import Peer
from dragoman.cluster.principal_uses import PrincipalUses
from dragoman.cluster.records import AnyRecord, Grants, LimitUse, PrincipalUse, Report, TenantUse
from dragoman.core.broker import Broker
from dragoman.core.infinity import inf
from dragoman.core.model import Service, Token
from dragoman.core.service_limits import ServiceLimits
from dragoman.core.states import RUNNING

REPORT_SOONEST: Final = 0.02  # seconds between two reports
REPORT_COST: Final = 0.00001  # seconds more for each principal with limits
REPORT_EVERY: Final = 0.5  # seconds, if nothing changes
LEASE: Final = 0.6  # part of the silence after which a broker is gone

Tenant = tuple[str, str]  # principal and name
Uses = tuple[dict[str, LimitUse], dict[str, PrincipalUse]]  # of services and of principals


@final
class LimitShares:
    """Reports the use of limits, and receives shares."""

    def __init__(
        self,
        broker: Broker,
        run: str,
        peers: dict[str, Peer],
        gone_after: float,
        granter_name: Callable[[float], str],
        counting_owner: Callable[[Token], Owner | None],
        request_flush: Callable[[], None],
    ) -> None:
        """`run`: of this broker. `granter_name`: the broker that grants shares; empty: none is known.
        `counting_owner`: the broker that has all jobs of the shard of an attempt."""
        broker.limiter.is_shared = True
        self.granter = Granter(broker, run, peers, gone_after, self._send_grants)
        self._broker = broker
        self._run = run
        self._name = run.rpartition(".")[0]
        self._peers = peers
        self._lease = LEASE * gone_after
        self._granter_name = granter_name
        self._request_flush = request_flush
        self._granter = ""  # run of the broker to which reports go
        self._after = 0  # number of its last grants
        self._number = 0
        self._sent_at: dict[int, float] = {}  # reports that are not answered
        self._uses: Uses | None = None  # as last reported
        self._principals = PrincipalUses(broker)
        self._report_at = -inf  # time of the last report
        self.moved = MovedAttempts(broker, self._name, counting_owner, gone_after)

    # ---------------------------------------------------------------- from the cluster's side

    def tick(self, now: float) -> float:
        """Report, and grant shares if this broker does. Returns the time of the next call."""
        if not self._broker.limiter.limited and not self._principals.count:
            return inf
        self._principals.count_brokers(len(self._peers) + 1)
        self._find_granter(now)
        if not self._granter:
            return now + REPORT_EVERY
        soonest = self._report_at + REPORT_SOONEST + REPORT_COST * self._principals.count
        if now < soonest:
            return soonest
        self.moved.settle(now)
        uses = self._present_uses(now)
        if uses != self._uses or now >= self._report_at + REPORT_EVERY:
            self._report(uses, now)
        due = self._report_at + REPORT_EVERY
        return min(due, self.granter.tick(now)) if self._granter == self._run else due

    def _find_granter(self, now: float) -> None:
        name = self._granter_name(now)
        peer = self._peers.get(name)
        run = self._run if name == self._name else f"{name}.{peer.incarnation}" if peer is not None else ""
        if run == self._granter:
            return
        if run:  # the new one learns what runs here, and nothing that the old one has granted may start any more
            self._broker.dispatch.suspend(self._broker.limiter.limited.values(), now)
        if self._granter == self._run:
            self.granter.stop()
        elif run == self._run:
            self.granter.begin(now)
        self._granter, self._after, self._uses = run, 0, None
        self._sent_at.clear()

    def gone(self, peer: Peer, now: float) -> None:
        """A broker is gone, or its link has been dropped."""
        run = f"{peer.name}.{peer.incarnation}"
        self.granter.gone(run, now)
        if self._granter == run:
            self._lapse(now)
            self._granter = ""

    def _lapse(self, now: float) -> None:
        self._broker.dispatch.lapse(self._broker.limiter.limited.values(), now)

    # ---------------------------------------------------------------- reports

    def _report(self, uses: Uses, now: float) -> None:
        self._uses, self._report_at = uses, now
        self._number += 1
        self._sent_at[self._number] = now
        services, principals = uses
        returned = {name: self._return_tokens(name, use) for name, use in services.items()}
        report = Report(self._number, self._after, returned, principals)
        peer = self._peers.get(self._granter.rpartition(".")[0])
        if self._granter == self._run:
            self.granter.reported(self._run, None, report, now)
        elif peer is not None:
            self._send(peer, report)

    def _return_tokens(self, name: str, use: LimitUse) -> LimitUse:
        """Give tokens back that no job waits for."""
        service = self._broker.limiter.limited[name]
        share = service.limits.share if service.limits is not None else None
        if share is None or use.waiting or not share.tokens:
            return use
        returned, share.tokens = share.tokens, 0
        self._broker.dispatch.reopen(service, self._report_at)
        return LimitUse(use.running, use.waiting, 0, returned, use.tenants, use.taken)

    def _present_uses(self, now: float) -> Uses:
        taken, of_principals = self._taken_by_run()
        moved = self.moved.of_services()
        services = {
            name: _use(service, service.limits, taken.get(name, {}), moved.get(name, {}))
            for name, service in self._broker.limiter.limited.items()
            if service.limits is not None and not service.limits.setting.is_empty
        }
        principals = self._principals.present(of_principals, self.moved.principals(), len(self._peers) + 1, now)
        return services, principals

    def _taken_by_run(self) -> tuple[dict[str, dict[str, dict[Tenant, int]]], dict[str, dict[str, int]]]:
        """Return the jobs of other brokers that run here, by service and run, and by principal and run, if their broker
        is not gone."""
        limited, shared = self._broker.limiter.limited, self._broker.principals.shared
        found: dict[str, dict[str, dict[Tenant, int]]] = {}
        by_principal: dict[str, dict[str, int]] = {}
        for peer in self._peers.values():
            run = f"{peer.name}.{peer.incarnation}"
            for each in peer.taken.values():
                job = each.job
                if job is None or job.state is not RUNNING or job.options.is_limited:
                    continue  # it has ended, and its outcome is not sent yet
                if each.service in limited:
                    tenants = found.setdefault(each.service, {}).setdefault(run, {})
                    key = job.principal.name, job.tenant
                    tenants[key] = tenants.get(key, 0) + 1
                if job.principal.name in shared:
                    runs = by_principal.setdefault(job.principal.name, {})
                    runs[run] = runs.get(run, 0) + 1
        return found, by_principal

    # ---------------------------------------------------------------- grants

    def reported(self, peer: Peer, report: Report, now: float) -> None:
        """Take the report of another broker."""
        if self._granter == self._run:
            self.granter.reported(f"{peer.name}.{peer.incarnation}", peer, report, now)

    def granted_by(self, peer: Peer, grants: Grants, now: float) -> None:
        self.granted(f"{peer.name}.{peer.incarnation}", grants, now)

    def granted(self, run: str, grants: Grants, now: float) -> None:
        """Take new shares. They replace the present ones."""
        sent_at = self._sent_at.get(grants.report)
        if run != self._granter or (sent_at is None and grants.report):
            return
        self._after = grants.number
        self._sent_at = {number: at for number, at in self._sent_at.items() if number >= grants.report}
        until = (sent_at if sent_at is not None else -inf) + self._lease
        if until <= now:
            self._lapse(now)
        else:
            self._broker.dispatch.lease_until = until
            for name, service in list(self._broker.limiter.limited.items()):
                self._apply(name, service, grants, now)
            self._principals.granted(grants, len(self._peers) + 1, now)
        self._uses = None  # the granter waits for a report that names these grants

    def _apply(self, name: str, service: Service, grants: Grants, now: float) -> None:
        limits = service.limits
        share = limits.share if limits is not None else None
        if share is None:
            return
        given = grants.shares.get(name)
        if given is None:
            self._broker.limiter.grant(service, 0, {}, -share.tokens, now)
            return
        share.running = given.running
        tenants = {(each.principal, each.tenant): each.running for each in given.tenants}
        if given.slots != share.slots or tenants != share.tenants or given.tokens:
            self._broker.limiter.grant(service, given.slots, tenants, given.tokens, now)

    def _send(self, peer: Peer, record: AnyRecord) -> None:
        peer.link.add(record)
        self._request_flush()

    def _send_grants(self, peer: Peer | None, grants: Grants, now: float) -> None:
        if peer is None:
            self.granted(self._run, grants, now)
        else:
            self._send(peer, grants)


def _use(
    service: Service, limits: ServiceLimits, by_run: dict[str, dict[Tenant, int]], moved: dict[Tenant, int]
) -> LimitUse:
    running = limits.running + sum(moved.values())
    tokens = limits.share.tokens if limits.share is not None else 0
    tenants: dict[Tenant, list[int]] = {}
    if limits.limits_tenants:
        for key, account in limits.tenants.items():
            tenants[key] = [account.running, 0]
        for key, count in moved.items():
            tenants.setdefault(key, [0, 0])[0] += count
        for leaf in service.queue.leaves():
            if leaf.length:
                tenants.setdefault((leaf.principal.name, leaf.tenant), [0, 0])[1] += leaf.length
    orphans = dict(limits.taken)
    for counts in by_run.values():
        for key, count in counts.items():
            orphans[key] = orphans.get(key, 0) - count
    taken = {run: _tenant_uses(counts) for run, counts in by_run.items()}
    left = {key: count for key, count in orphans.items() if count > 0}
    if left:
        taken[""] = _tenant_uses(left)
    uses = [TenantUse(*key, *counts) for key, counts in tenants.items() if any(counts)]
    return LimitUse(running, service.queue.length, tokens, 0, uses, taken)


def _tenant_uses(counts: dict[Tenant, int]) -> list[TenantUse]:
    return [TenantUse(principal, tenant, count) for (principal, tenant), count in counts.items()]
