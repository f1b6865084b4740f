"""check(broker): everything that must always hold, whatever peers do. The letters are those of docs/rules.md."""

from __future__ import annotations

from math import inf

from dragoman.core import deadlines, queues
from dragoman.core.broken import InvariantBroken
from dragoman.core.broker import Broker
from dragoman.core.model import Job, Service, Worker
from dragoman.core.states import JobState, WorkerState


def check(broker: Broker) -> None:
    """Raise InvariantBroken if anything is amiss. Its cost grows with all that is present."""
    _check_jobs(broker)
    for service in broker.roster.services.values():
        _check_service(broker, service)
    for worker in broker.roster.workers.values():
        _check_worker(broker, worker)
    _check_deadlines(broker)
    _check_owners(broker)


def _check_jobs(broker: Broker) -> None:
    queued = {job.id: job for service in broker.roster.services.values() for job in service.queue}
    present = 0
    for job in broker.jobs.values():
        attempt = job.attempt
        if job.state is JobState.WAITING:
            require(job.id in queued, "I1", f"{_name(job)} waits in no queue")
        else:
            require(job.id not in queued, "I1", f"{_name(job)} is {job.state} and stands in a queue")
        require((job.state is JobState.RUNNING) == (attempt is not None), "I1", f"{_name(job)} runs without an attempt")
        if attempt is not None:
            require(attempt.job is job, "I10", f"{_name(job)} has another job's attempt")
            require(
                attempt.worker.running.get(attempt.token) is attempt,
                "I10",
                f"{_name(job)}: its worker does not hold it",
            )
        require((job.state is JobState.ENDED) == (job.outcome is not None), "I9", f"{_name(job)} ended without outcome")
        require(job.state is not JobState.ENDED or job.is_kept, "I4", f"{_name(job)} ended and is still here")
        is_reserved = job.reservation is not None
        require(
            not is_reserved or (job.state is JobState.WAITING and job.wishes.durable),
            "I8",
            f"{_name(job)} is {job.state} and its next attempt is reserved",
        )
        for caller in job.callers:
            require(caller.open_job(job.id) is job, "I4", f"{_name(job)} has a caller that does not know it as open")
        limit = job.wishes.attempts
        require(limit is None or job.spent <= limit, "I8", f"{_name(job)} has spent {job.spent} attempts of {limit}")
        require(not job.quarantined or job.spent > 0, "I22", f"{_name(job)} is quarantined without a spent attempt")
        present += job.state is not JobState.ENDED
    require(present == broker.ledger.present, "I1", f"{present} jobs are present, {broker.ledger.present} are counted")
    require(all(job_id in broker.jobs for job_id in queued), "I1", "a job stands in a queue and is not here")
    ended = sum(broker.counters.ended.values())
    require(
        broker.counters.accepted + broker.counters.restored + broker.counters.released == ended + broker.ledger.present,
        "I17",
        "jobs accepted, restored and released are not those ended and present",
    )
    size = sum(len(job.payload) for job in broker.jobs.values() if job.state is not JobState.ENDED)
    require(size == broker.ledger.bytes, "I5", f"payloads take {size} bytes, {broker.ledger.bytes} are counted")
    attempts = [job.attempt for job in broker.jobs.values() if job.attempt is not None]
    size = sum(len(piece) for each in attempts if each.parts is not None for piece in each.parts.pieces)
    require(size == broker.ledger.part_bytes, "I5", f"parts take {size} bytes, {broker.ledger.part_bytes} are counted")


def _check_service(broker: Broker, service: Service) -> None:
    queue = service.queue
    waiting = list(queue)
    name = f"service {service.name}"
    require(len(waiting) == queue.length, "I1", f"{name}: {len(waiting)} jobs wait, {queue.length} are counted")
    require(queue._dead <= queues.SWEEP_FLOOR + queue.length, "I5", f"{name}: {queue._dead} dead entries in the queue")
    if queue.length and not service.paused and not broker.is_draining:
        require(not service.idle and not service.held_back, "I6", f"{name}: a job waits while a worker is idle")
    offering = sum(service in worker.services for worker in broker.roster.workers.values())
    require(offering == service.workers, "I1", f"{name}: {offering} workers offer it, {service.workers} are counted")
    jobs = sum(job.service is service and job.state is not JobState.ENDED for job in broker.jobs.values())
    require(jobs == service.jobs, "I1", f"{name}: {jobs} jobs are present, {service.jobs} are counted")
    both = [worker.id for worker in service.idle if worker in service.held_back]
    require(not both, "I2", f"{name}: workers {both} stand among the idle twice")
    for worker in (*service.idle, *service.held_back):
        require(worker.state is WorkerState.IDLE, "I2", f"worker {worker.id} is {worker.state} and listed as idle")
        require(worker.id in broker.roster.workers, "I2", f"worker {worker.id} is gone and listed as idle")
    for lane in queue._lanes.values():
        orders = [job.order for job in lane if job.order != inf]
        require(orders == sorted(orders), "I12", f"{name}: jobs of one priority do not stand in the order they came")


def _check_worker(broker: Broker, worker: Worker) -> None:
    name = f"worker {worker.id}"
    require(worker.free >= 0, "I2", f"{name} holds more than its capacity {worker.terms.capacity}")
    for service in worker.services:
        is_listed = broker.roster.services.get(service.name) is service
        require(is_listed, "I2", f"{name} offers a service {service.name} that nobody can ask for")
    for attempt in worker.running.values():
        require(attempt.job.attempt is attempt, "I10", f"{name} runs an attempt that is not current")
    for attempt in worker.unproven.values():
        require(attempt.job.attempt is not attempt, "I10", f"{name} is unproven of a current attempt")
    is_everywhere = all(worker in s.idle or worker in s.held_back for s in worker.services)
    is_nowhere = not any(worker in s.idle or worker in s.held_back for s in worker.services)
    if worker.state is WorkerState.IDLE:
        require(worker.free > 0, "I2", f"{name} is idle without a free slot")
        require(worker.asked > 0, "I2", f"{name} is idle and asks for nothing")
        require(is_everywhere, "I2", f"{name} is idle and not listed for all its services")
    else:
        require(is_nowhere, "I2", f"{name} is {worker.state} and listed as idle")
    if worker.state is WorkerState.BUSY:
        require(bool(worker.running), "I2", f"{name} is busy with nothing")
    if worker.state is WorkerState.UNPROVEN or worker.state is WorkerState.RESTING:
        require(bool(worker.unproven) and not worker.running, "I2", f"{name} is {worker.state} of nothing")
    is_away = worker.state is WorkerState.DETACHED or worker.state is WorkerState.DRAINING
    require(worker.away_since == inf or is_away, "I2", f"{name} is {worker.state} and out of reach")
    if worker.state is WorkerState.DETACHED:
        is_deaf = worker.asked <= 0 and worker.free > 0
        require(worker.away_since != inf or is_deaf, "I2", f"{name} is detached, within reach and asks")
    require(worker.state is not WorkerState.GONE, "I9", f"{name} is gone and still here")


def _check_deadlines(broker: Broker) -> None:
    alarms = broker._deadlines
    living = 0
    for due, number, subject in alarms.entries():
        if subject.alarm_number == number:
            living += 1
            require(subject.alarm == due, "I11", "an alarm and its subject disagree")
            is_here = subject.id in (broker.jobs if isinstance(subject, Job) else broker.roster.workers)
            require(is_here, "I11", "a living alarm refers to something that is gone")
    require(living == alarms.armed, "I11", f"{living} alarms live, {alarms.armed} are counted")
    most = deadlines.SWEEP_FLOOR + 3 * (alarms.armed + 1)
    require(len(alarms) <= most, "I11", f"{len(alarms)} alarms, {living} live")
    for job in broker.jobs.values():
        require(job.alarm <= job.due(), "I11", f"{_name(job)} will not be looked at in time")
    for worker in broker.roster.workers.values():
        require(worker.alarm <= worker.due(), "I11", f"worker {worker.id} will not be looked at in time")


def _check_owners(broker: Broker) -> None:
    owners = {id(job.owner): job.owner for job in broker.jobs.values() if job.owner is not None}
    for owner in owners.values():
        jobs = sum(job.owner is owner and job.state is not JobState.ENDED for job in broker.jobs.values())
        require(jobs == owner.jobs, "I5", f"{owner.label} has {jobs} jobs, {owner.jobs} are counted")
        names = sum(service.owner is owner for service in broker.roster.services.values())
        require(names == owner.names, "I5", f"{owner.label} is charged for {names} names, {owner.names} are counted")
    for service in broker.roster.services.values():
        is_due = service.jobs > 0 and not service.is_known
        require(service.owner is None or is_due, "I5", f"service {service.name}: its owner is charged for nothing")


def _name(job: Job) -> str:
    return f"job {job.id.hex()}"


def require(holds: bool, letter: str, sentence: str) -> None:
    if not holds:
        raise InvariantBroken(f"{letter}: {sentence}")
