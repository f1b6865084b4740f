"""Invariants of turns and limits: who takes turns, who is blocked, and the counts of running jobs that decide it."""

from __future__ import annotations

from dragoman.core.errors import broken
from dragoman.core.fair_queue import FairQueue, Ring, TenantQueues
from dragoman.core.model import Job, Service
from dragoman.core.queues import Queue, Waiting
from dragoman.core.rights import Principal
from dragoman.core.running_account import RunningAccount


def may_start(service: Service, queue: Queue[Job]) -> bool:
    """True if no limit and no pause prevents that the first job of this queue starts."""
    limits = service.limits
    if service.paused or (limits is not None and limits.is_full) or _is_full(queue.principal):
        return False
    return limits is None or limits.has_room(queue.principal.name, queue.tenant)


def check_turns(service: Service) -> None:
    """Check the ring of a service, and those of its principals."""
    queue = service.queue
    _check_ring(queue)
    for name, member in queue.members.items():
        if isinstance(member, TenantQueues):
            _check_ring(member)
            is_named = all(leaf.tenant == tenant for tenant, leaf in zip(member.members, member.leaves(), strict=True))
            if member.principal.name != name or not is_named:
                raise broken("I6", f"service {service.name}: {name} has the queue of another principal or tenant")


def check_limits(service: Service, running: list[Job]) -> None:
    """Check the numbers of a service with limits. `running`: its running jobs."""
    limits = service.limits
    if service.closed != (service.paused or (limits is not None and limits.is_full)):
        raise broken("I6", f"service {service.name}: closed is {service.closed} without a reason")
    if limits is None:
        return
    taken = len([job for job in running if not job.options.is_limited])
    if sum(limits.taken.values()) != taken:
        raise broken("I5", f"service {service.name}: {taken} jobs of other brokers run, {limits.taken} are counted")
    running = [job for job in running if job.options.is_limited]
    if limits.running != len(running):
        raise broken("I5", f"service {service.name}: {len(running)} jobs run, {limits.running} are counted")
    by_tenant: dict[tuple[str, str], int] = {}
    for job in running:
        key = job.principal.name, job.tenant
        by_tenant[key] = by_tenant.get(key, 0) + 1
    counted = {key: tenant.running for key, tenant in limits.tenants.items() if tenant.running}
    if by_tenant != counted:
        raise broken("I5", f"service {service.name}: tenants run {by_tenant} jobs, {counted} are counted")
    queues = {
        (member.principal.name, leaf.tenant): leaf.account
        for member in service.queue.members.values()
        if isinstance(member, TenantQueues)
        for leaf in member.leaves()
    }
    for key, tenant in limits.tenants.items():
        if tenant.has_queue != (key in queues) or not (tenant.running or tenant.has_queue):
            raise broken("I5", f"service {service.name}: tenant {key} has no job, and an account")
        if tenant.has_queue and queues[key] is not tenant:
            raise broken("I5", f"service {service.name}: the queue of tenant {key} has another account")
        if tenant.max_running != limits.most_of(key):
            raise broken("I5", f"service {service.name}: tenant {key} has an old limit")
    if limits.waits_for_rate and limits.share is None and limits.alarm > limits.next_start:
        raise broken("I11", f"service {service.name} has no timer for the next start of its rate")


def check_blocked(principal: Principal, services: dict[str, Service]) -> None:
    """Check that the queues that a principal blocks are there."""
    for name, queue in principal.blocked.items():
        service = services.get(name)
        if service is None or service.queue.members.get(principal.name) is not queue:
            raise broken("I6", f"service {name}: {principal.name} is blocked there and has no queue")


def _check_ring(ring: Ring[Job]) -> None:
    service = ring.service
    if ring.length != sum(member.length for member in ring.members.values()):
        raise broken("I1", f"service {service}: {ring.length} jobs of a ring are counted, not those of its members")
    in_turn = list(ring._turns)
    for name, member in ring.members.items():
        if member.ring is not ring:
            raise broken("I6", f"service {service}: {name} takes turns in another ring")
        if in_turn.count(member) != (member.has_turn and not member.is_blocked):
            raise broken("I6", f"service {service}: {name} does not know whether it takes turns")
        if member.length and not member.has_turn and not _all_blocked(member):
            raise broken("I6", f"service {service}: jobs of {name} wait, and it has no turn")
        account = member.account
        if member.is_blocked and (account is None or not _is_full(account)):
            raise broken("I6", f"service {service}: jobs of {name} are blocked without a reason")
        if account is not None and (account.blocked.get(service) is member) != member.is_blocked:
            raise broken("I6", f"service {service}: the account of {name} does not know whether its jobs are blocked")
    if any(each is not ring.members.get(_name(each)) for each in in_turn):
        raise broken("I6", f"service {service}: a queue takes turns and is forgotten")


def _all_blocked(member: Waiting[Job]) -> bool:
    if not isinstance(member, TenantQueues):
        return False
    return not member._turns and all(each.is_blocked for each in member.members.values())


def _name(member: Waiting[Job]) -> str:
    if isinstance(member, Queue) and not isinstance(member.ring, FairQueue):
        return member.tenant
    assert isinstance(member, Queue | TenantQueues)
    return member.principal.name


def _is_full(account: RunningAccount) -> bool:
    return account.running >= account.max_running
