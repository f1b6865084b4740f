"""Invariants of the broker. The letters are those of docs/rules.md."""

from __future__ import annotations

from dragoman.core import deadlines
from dragoman.core.archive import FOREVER
from dragoman.core.broker import Broker
from dragoman.core.count_invariants import check_counts
from dragoman.core.errors import broken
from dragoman.core.fair_queue import FairQueue
from dragoman.core.groups import Group
from dragoman.core.infinity import inf
from dragoman.core.leases import worker_deadline
from dragoman.core.limit_invariants import check_blocked, check_limits, check_turns, may_start
from dragoman.core.link_invariants import check_groups, check_links
from dragoman.core.memory import Transit
from dragoman.core.model import Job, JobId, Service, Worker
from dragoman.core.owners import Owner
from dragoman.core.queues import SWEEP_FLOOR, Queue
from dragoman.core.service_limits import ServiceLimits
from dragoman.core.states import (
    BACKING_OFF,
    BUSY,
    DETACHED,
    DRAINING,
    ENDED,
    GONE,
    IDLE,
    RUNNING,
    STUCK,
    WAITING,
    JobState,
)


def check(broker: Broker) -> None:
    """Raise InvariantBroken if an invariant does not hold. Checks every job, worker, service and timer."""
    waiting = {service: _waiting(service.queue) for service in broker.worker_registry.services.values()}
    _check_services(broker, waiting, _check_jobs(broker, {job.id for jobs in waiting.values() for job in jobs}))
    for worker in broker.worker_registry.workers.values():
        _check_worker(broker, worker)
    _check_deadlines(broker)
    check_counts(broker)
    check_links(broker)
    check_groups(broker)
    _check_owners(broker)
    _check_principals(broker)
    for service in waiting:
        check_limits(service, [] if service.limits is None else _running(broker, service))


# Simulations check after each event, so an error message is built only when it is needed.


def _waiting(queue: FairQueue[Job]) -> list[Job]:
    """Return the jobs of a queue: those that iterating over it gives, in less time."""
    found: list[Job] = []
    for each in queue.leaves():
        found += [job for lane in each._lanes.values() for job in lane if job.order != inf]
        if each._returned:
            found += [job for order, _, job in each._returned if job.order == order]
    return found


def _check_jobs(broker: Broker, queued: set[JobId]) -> dict[Service, tuple[int, int]]:
    """Check every job. Returns the number and the bytes of the jobs of each service that have not ended."""
    size = part_size = waiting = present = 0
    present_in: dict[Service, tuple[int, int]] = {}
    for job in broker.jobs.values():
        state = job.state
        _check_job(job, state, job.id in queued)
        if state is not ENDED:
            count, bytes_there = present_in.get(job.service, (0, 0))
            present_in[job.service] = count + 1, bytes_there + len(job.payload)
            present += 1
            size += len(job.payload)
            if state is WAITING:
                waiting += 1
        attempt = job.attempt
        if attempt is not None and attempt.parts is not None:
            part_size += sum(map(len, attempt.parts.pieces))
    if present != broker.job_registry.present:
        raise broken("I1", f"{present} jobs are present, {broker.job_registry.present} are counted")
    if waiting != len(queued):  # the loop above has checked that every waiting job is queued
        raise broken("I1", "a queue has a job that is not registered")
    counters = broker.counters
    if counters.accepted + counters.restored + counters.released != (
        sum(counters.ended.values()) + present + counters.evicted
    ):
        raise broken("I17", "jobs accepted, restored and released are not those ended, present and evicted")
    if size != broker.job_registry.memory.payloads:
        raise broken("I5", f"payloads take {size} bytes, {broker.job_registry.memory.payloads} are counted")
    if part_size != broker.job_registry.parts.bytes:
        raise broken("I5", f"parts take {part_size} bytes, {broker.job_registry.parts.bytes} are counted")
    memory = broker.job_registry.memory
    if memory.in_transit != sum(memory.transit.values()) or memory.transit[Transit.RESULT_PARTS] != part_size:
        raise broken("I5", f"data in transit takes {memory.transit}, {memory.in_transit} bytes are counted")
    return present_in


def _running(broker: Broker, service: Service) -> list[Job]:
    return [job for job in broker.jobs.values() if job.state is RUNNING and job.service is service]


def _check_job(job: Job, state: JobState, is_queued: bool) -> None:
    attempt = job.attempt
    if state is WAITING and not is_queued:
        raise broken("I1", f"{_name(job)} waits in no queue")
    if is_queued and state is not WAITING:
        raise broken("I1", f"{_name(job)} is {state} and in a queue")
    if (state is RUNNING) != (attempt is not None):
        raise broken("I1", f"{_name(job)} runs without an attempt")
    if attempt is not None:
        if attempt.job is not job:
            raise broken("I10", f"{_name(job)} has another job's attempt")
        if attempt.worker.running.get(attempt.token) is not attempt:
            raise broken("I10", f"the worker of {_name(job)} does not hold it")
    if (state is ENDED) != (job.outcome is not None):
        raise broken("I9", f"{_name(job)} ended without outcome")
    if state is ENDED and not job.is_kept:
        raise broken("I4", f"{_name(job)} ended and is still registered")
    for caller in job.callers:
        if caller.open_job(job.id) is not job:
            raise broken("I4", f"{_name(job)} has a caller without an open job of this id")
    limit = job.options.attempts
    if limit is not None and job.spent > limit:
        raise broken("I8", f"{_name(job)} has spent {job.spent} attempts of {limit}")
    if job.quarantined and job.spent <= 0:
        raise broken("I22", f"{_name(job)} is quarantined without a spent attempt")


def _check_services(broker: Broker, waiting: dict[Service, list[Job]], present: dict[Service, tuple[int, int]]) -> None:
    offers: dict[Service, int] = {}
    for worker in broker.worker_registry.workers.values():
        for service in worker.services:
            offers[service] = offers.get(service, 0) + 1
    for service, jobs in waiting.items():
        count, size = present.get(service, (0, 0))
        _check_service(broker, service, len(jobs), offers.get(service, 0), count)
        if size != service.bytes:
            raise broken("I5", f"service {service.name}: payloads take {size} bytes, {service.bytes} are counted")


def _check_service(broker: Broker, service: Service, waiting: int, offers: int, jobs: int) -> None:
    queue = service.queue
    name = service.name
    if waiting != queue.length:
        raise broken("I1", f"service {name}: {waiting} jobs wait, {queue.length} are counted")
    is_idle = bool(service.idle or service.held_back) and not broker.dispatch.is_draining
    check_turns(service)
    for leaf in queue.leaves():
        _check_queue(name, leaf)
        if is_idle and leaf.length and may_start(service, leaf):
            raise broken("I6", f"service {name}: a job waits while a worker is idle")
    if offers != service.workers:
        raise broken("I1", f"service {name}: {offers} workers offer it, {service.workers} are counted")
    if jobs != service.jobs:
        raise broken("I1", f"service {name}: {jobs} jobs are present, {service.jobs} are counted")
    if service.idle.first() is not None or service.held_back.first() is not None:
        _check_idle(broker, service)


def _check_idle(broker: Broker, service: Service) -> None:
    idle, held_back = list(service.idle), list(service.held_back)
    both = [worker.id for worker in held_back if worker in service.idle]
    if both:
        raise broken("I2", f"service {service.name}: workers {both} are listed as idle twice")
    for worker in idle + held_back:
        if worker.state is not IDLE:
            raise broken("I2", f"worker {worker.id} is {worker.state} and listed as idle")
        if worker.id not in broker.worker_registry.workers:
            raise broken("I2", f"worker {worker.id} is gone and listed as idle")


def _check_queue(service: str, queue: Queue[Job]) -> None:
    if queue._dead > SWEEP_FLOOR + queue.length:
        raise broken("I5", f"service {service}: {queue._dead} dead entries in the queue")
    for lane in queue._lanes.values():
        if len(lane) > 1:
            orders = [job.order for job in lane if job.order != inf]
            if orders != sorted(orders):
                raise broken("I12", f"service {service}: jobs of one priority are not in order of arrival")


def _check_worker(broker: Broker, worker: Worker) -> None:
    id = worker.id
    state = worker.state
    free = worker.free
    running = worker.running
    stuck = worker.stuck
    if free < 0:
        raise broken("I2", f"worker {id} holds more than its capacity {worker.profile.capacity}")
    for attempt in running.values():
        if attempt.job.attempt is not attempt:
            raise broken("I10", f"worker {id} runs an attempt that is not current")
    for attempt in stuck.values():
        if attempt.job.attempt is attempt:
            raise broken("I10", f"worker {id} is stuck with a current attempt")
    is_idle = state is IDLE
    if is_idle:
        if free <= 0:
            raise broken("I2", f"worker {id} is idle without a free slot")
        if worker.asked <= 0:
            raise broken("I2", f"worker {id} is idle and requests no job")
    elif state is BUSY:
        if not running and not worker.is_behind:
            raise broken("I2", f"worker {id} is busy without an attempt")
    elif state is STUCK or state is BACKING_OFF:
        if running or not stuck:
            raise broken("I2", f"worker {id} is {state} without a stuck attempt")
    elif state is GONE:
        raise broken("I9", f"worker {id} is gone and still registered")
    services = broker.worker_registry.services
    for service in worker.services:
        if services.get(service.name) is not service:
            raise broken("I2", f"worker {id} offers a service {service.name} that is not registered")
        if (worker in service.idle._nodes or worker in service.held_back._nodes) is not is_idle:
            problem = "not listed for all its services" if is_idle else "listed as idle"
            raise broken("I2", f"worker {id} is {state} and {problem}")
    if state is DETACHED:
        if worker.away_since == inf and (worker.asked > 0 or free <= 0):
            raise broken("I2", f"worker {id} is detached, reachable and requests a job")
    elif worker.away_since != inf and state is not DRAINING:
        raise broken("I2", f"worker {id} is {state} and not reachable")
    if worker.is_behind and worker not in broker.dispatch.loaded:
        raise broken("I2", f"worker {id} is behind and its unsent bytes are not measured")
    if worker.alarm > worker_deadline(worker):
        raise broken("I11", f"worker {id} has no timer that is early enough")


def _check_deadlines(broker: Broker) -> None:
    alarms = broker._deadlines
    jobs = broker.jobs
    workers, services = broker.worker_registry.workers, broker.worker_registry.services
    living = 0
    for due, number, subject in alarms.entries():
        if subject.alarm_number == number:
            living += 1
            if subject.alarm != due:
                raise broken("I11", "a timer and its subject have different due times")
            if isinstance(subject, ServiceLimits):
                service = services.get(subject.service)
                is_there = service is not None and service.limits is subject
            elif isinstance(subject, Group):
                is_there = subject.id in broker.job_registry.groups.by_id
            else:
                is_there = subject.id in (jobs if isinstance(subject, Job) else workers)
            if not is_there:
                raise broken("I11", "a live timer refers to a job, worker, service or group that is gone")
    if living != alarms.armed:
        raise broken("I11", f"{living} timers are live, {alarms.armed} are counted")
    if len(alarms) > deadlines.SWEEP_FLOOR + 3 * (alarms.armed + 1):
        raise broken("I11", f"{len(alarms)} timers, {living} live")
    for job in jobs.values():
        if job.alarm > job.due() and job.due() != FOREVER:
            raise broken("I11", f"{_name(job)} has no timer that is early enough")


def _check_owners(broker: Broker) -> None:
    jobs: dict[Owner, list[int]] = {}
    for job in broker.jobs.values():
        if job.owner.is_limited:
            jobs.setdefault(job.owner, [])
            if job.state is not ENDED:
                jobs[job.owner].append(len(job.payload))
    for owner, sizes in jobs.items():
        if len(sizes) != owner.jobs:
            raise broken("I5", f"{owner.label} has {len(sizes)} jobs, {owner.jobs} are counted")
        if sum(sizes) != owner.bytes:
            raise broken("I5", f"payloads of {owner.label} take {sum(sizes)} bytes, {owner.bytes} are counted")
        names = sum(service.owner is owner for service in broker.worker_registry.services.values())
        if names != owner.names:
            raise broken("I5", f"{owner.label} is charged for {names} names, {owner.names} are counted")
    for service in broker.worker_registry.services.values():
        if service.owner is not None and (service.jobs <= 0 or service.is_known):
            raise broken("I5", f"service {service.name}: an owner is charged without a reason")


def _check_principals(broker: Broker) -> None:
    """Check the counts of the principals that the broker knows. One that it does not know may use other brokers."""
    found = {principal: [0, 0, 0, 0, 0] for principal in broker.principals}
    for job in broker.jobs.values():
        counts = found.get(job.principal)
        if counts is None:
            continue
        counts[4] += len(job.payload) if job.state is not ENDED else 0
        if not job.options.is_limited:
            counts[3] += job.state is RUNNING
        elif job.state is RUNNING:
            counts[2] += 1
        elif job.state is not ENDED:
            counts[0] += 1
            counts[1] += len(job.payload)
    for principal, counts in found.items():
        counted = [principal.waiting, principal.waiting_bytes, principal.running, principal.taken]
        counted.append(principal.bytes)
        if counts != counted:
            what = "waiting jobs, their bytes, running jobs, those that other brokers count, and all bytes"
            raise broken("I5", f"{principal.name} has {counts} {what}; {counted} are counted")
        check_blocked(principal, broker.worker_registry.services)


def _name(job: Job) -> str:
    return f"job {job.id.hex()}"
