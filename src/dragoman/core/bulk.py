"""Many jobs in one submit: all of them are accepted and stored in one commit, or none.

Members of a batch may come after each other, and may form groups. The order of the batch is the order of the jobs in
their queues, except that a job comes behind those that it waits for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import final

from dragoman.core.accepted_jobs import discard_job
from dragoman.core.admission import refusal_for, too_many_services
from dragoman.core.archive import keeps_forever
from dragoman.core.delays import Delays
from dragoman.core.dependencies import Dependencies
from dragoman.core.dispatch import Dispatch
from dragoman.core.job_extras import JobExtras
from dragoman.core.job_limits import BEING_READ, ReachedLimit, limit_reached
from dragoman.core.kept_jobs import digest
from dragoman.core.model import ABSENT, Job, JobId, Payload, Service
from dragoman.core.options import JobOptions
from dragoman.core.owners import Owner
from dragoman.core.rights import CALL
from dragoman.core.shared_state import SharedState
from dragoman.core.shares import administers, has_queue_share, share_problem
from dragoman.core.states import ENDED, RefusalReason


@final
class NewJob:
    """A job of a batch."""

    __slots__ = ("extras", "id", "key", "options", "payload", "service")

    def __init__(
        self,
        service: str,
        payload: Payload,
        job_options: JobOptions,
        id: JobId,
        key: str | None = None,
        extras: JobExtras | None = None,
    ) -> None:
        self.service = service
        self.payload = payload
        self.options = job_options
        self.id = id
        self.key = key
        self.extras = extras  # `after` and `group` may name jobs and groups of the same batch; the place is set here


@final
class Refusal(Exception):
    """The reason to refuse a batch. `index`: the job that it is about; None: all of them."""

    def __init__(self, reason: RefusalReason, text: str, index: int | None = None, limit: str = "") -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text
        self.index = index
        self.limit = limit  # name of the limit that is reached


class BulkSubmits:
    """Accepts batches of background jobs."""

    __slots__ = (
        "_counters",
        "_delays",
        "_dependencies",
        "_dispatch",
        "_policy",
        "_refused_rights",
        "_registry",
        "_workers",
    )

    def __init__(self, state: SharedState, dispatch: Dispatch, delays: Delays, dependencies: Dependencies) -> None:
        self._policy = state.policy
        self._counters = state.counters
        self._registry = state.job_registry
        self._workers = state.worker_registry
        self._refused_rights = state.refused_rights
        self._dispatch = dispatch
        self._delays = delays
        self._dependencies = dependencies

    def submit(self, orders: list[NewJob], owner: Owner, dialect: str, now: float) -> list[Job]:
        """Accept background jobs. Returns them in their order; with a key that is in use, the first job that has it.
        Raises Refusal. They are acknowledged, if at all, when the store has committed everything decided so far."""
        try:
            return self._submit(orders, owner, dialect, now)
        except Refusal as refusal:
            service = orders[refusal.index or 0].service
            counted_as = self._workers.names.counted_as(service)
            self._counters.refuse(counted_as, refusal.reason, refusal.text, refusal.limit)
            raise

    def is_repeated(self, orders: list[NewJob], owner: Owner) -> bool:
        """True if the same batch was accepted before."""
        return self._repeated(orders, owner) is not None

    def _submit(self, orders: list[NewJob], owner: Owner, dialect: str, now: float) -> list[Job]:
        registry = self._registry
        if registry.is_loading:
            raise Refusal(RefusalReason.BUSY, BEING_READ)
        repeated = self._repeated(orders, owner)
        if repeated is not None:
            return repeated
        turn = order_of(orders)
        self._check_groups(orders, owner)
        services = self._services(orders, owner, dialect)
        jobs: list[Job] = []
        new: list[Job] = []
        owner.principal.begin_batch()
        try:
            waiting: dict[Service, int] = {}
            forever = 0  # new jobs whose outcome is kept until it is deleted
            for index, order in enumerate(orders):
                service = services[order.service]
                first = self._first_with_key(order, service, owner, index, forever)
                if first is not None:
                    jobs.append(first)
                    continue
                if order.id in registry.jobs:
                    raise Refusal(RefusalReason.INVALID, f"a job with id {order.id.hex()} already exists", index)
                more = waiting.get(service, 0)
                job = None
                if has_queue_share(service, self._policy.max_jobs_per_service, owner.principal, more):
                    job = registry.admit(order.id, service, order.payload, (), order.options, now, order.key, owner)
                if job is None:
                    raise self._limit(order, service, owner, more, index)
                waiting[service] = more + 1
                forever += keeps_forever(job)
                job.caller_dialect = dialect
                if order.extras is not None:
                    registry.with_extras.add(job, order.extras)
                jobs.append(job)
                new.append(job)
        except Refusal:
            for job in reversed(new):
                discard_job(registry, self._counters, job)
            raise
        finally:
            owner.principal.end_batch()
        self._enter_groups(new, owner)
        fresh = {job.id: job for job in new}
        for index in turn:
            job = jobs[index]
            if fresh.pop(job.id, None) is not None:
                if job.extras is not None and job.extras.after:
                    self._dependencies.add(job, now)
                else:
                    self._delays.add(job, now)
        return jobs

    # ---------------------------------------------------------------- checks

    def _repeated(self, orders: list[NewJob], owner: Owner) -> list[Job] | None:
        """Return the jobs of an equal batch: its response was lost, and the client has sent it again."""
        jobs = self._registry.jobs
        found = [job for order in orders if (job := jobs.get(order.id)) is not None]
        if not found or len(found) < len(orders):
            return None
        if not all(job.owner.principal is owner.principal for job in found):
            return None
        for index, (job, order) in enumerate(zip(found, orders, strict=True)):
            if job.service.name != order.service or job.key != order.key or _has_other_payload(job, order.payload):
                text = f"a job with id {job.id.hex()} exists, and it is another one; a new job needs a new id"
                raise Refusal(RefusalReason.INVALID, text, index)
        return found

    def _services(self, orders: list[NewJob], owner: Owner, dialect: str) -> dict[str, Service]:
        """Return the services by name. Raises Refusal."""
        names: dict[str, None] = {}
        for index, order in enumerate(orders):
            name = order.service
            if name in names:
                continue
            if not owner.principal.may(CALL, name):
                self._refused_rights.note(owner.principal, CALL, (name,), dialect)
                raise Refusal(RefusalReason.FORBIDDEN, f"{owner.principal.name} may not call '{name}'", index)
            known = self._workers.services.get(name)
            refusal = refusal_for(name, known, order.options, self._policy, self._dispatch.is_draining, owner)
            if refusal is not None:
                raise Refusal(*refusal, index)
            names[name] = None
        found = self._workers.names.requested(
            names, owner
        )  # all at once: a new one without jobs may be forgotten for another
        if found is None:
            raise Refusal(*too_many_services(self._workers.names, owner), None, "max_services")
        return dict(zip(names, found, strict=True))

    def _first_with_key(self, order: NewJob, service: Service, owner: Owner, index: int, forever: int) -> Job | None:
        key = order.key
        if key is None and order.options.keep is None:
            return None
        first, refused = self._registry.kept.judge(owner, service, key, order.payload, order.options, forever)
        if refused is not None:
            reason, text, limit = refused
            raise Refusal(reason, text, index, limit)
        if first is not None and order.extras is not None and order.extras.group is not None:
            text = f"job {first.id.hex()} has the key '{key}' already; a job of a group must be a new one"
            raise Refusal(RefusalReason.KEY_REUSED, text, index)
        return first

    def _limit(self, order: NewJob, service: Service, owner: Owner, more: int, index: int) -> Refusal:
        most = self._policy.max_jobs_per_service
        if not has_queue_share(service, most, owner.principal, more):
            text = f"{service.queue.length + more} jobs would wait for this service, of at most {most}"
            text += f" (max_jobs_per_service), half of which {owner.principal.name} may take; retry later"
            return Refusal(RefusalReason.BUSY, text, index, "max_jobs_per_service")
        size = len(order.payload)
        reached: ReachedLimit = limit_reached(self._registry, self._policy, service, size, order.key, owner)
        return Refusal(reached.refusal, reached.text, index, reached.name)

    def _check_groups(self, orders: list[NewJob], owner: Owner) -> None:
        groups = self._registry.groups.by_id
        new: dict[JobId, None] = {}
        for index, order in enumerate(orders):
            id = order.extras.group if order.extras is not None else None
            if id is None or id in new:
                continue
            if id in groups or id in self._registry.jobs:
                raise Refusal(RefusalReason.INVALID, f"the id {id.hex()} of a group is in use already", index)
            new[id] = None
        shares, principal = self._registry.groups.shares, owner.principal
        if not shares.allows_holder(principal.name, len(new), is_administrator=administers(principal)):
            held, things = shares.held(principal.name), "groups that are open or kept"
            text = share_problem(principal.name, held, shares.taken, shares.most, things, "max_groups")
            raise Refusal(RefusalReason.BUSY, f"{text}; retry when some are complete", None, "max_groups")

    def _enter_groups(self, jobs: list[Job], owner: Owner) -> None:
        """Make the groups, and give each member its place."""
        members: dict[JobId, list[Job]] = {}
        for job in jobs:
            if job.extras is not None and job.extras.group is not None:
                members.setdefault(job.extras.group, []).append(job)
        for id, group in members.items():
            names = [job.service.name for job in group]
            self._registry.groups.create(id, owner.principal.name, len(group), names)
            for place, job in enumerate(group):
                assert job.extras is not None
                job.extras = replace(job.extras, place=place)
                self._registry.groups.enter(job)


def _has_other_payload(job: Job, payload: Payload) -> bool:
    """True if a job is known to have been submitted with another payload. A dependent job's may be its input by now."""
    if job.key is not None:
        return job.digest != digest(payload)
    if job.state is ENDED or job.payload is ABSENT or (job.extras is not None and job.extras.after):
        return False
    return job.payload != payload


def order_of(orders: list[NewJob]) -> list[int]:
    """Return the indexes of the jobs, each behind those that it comes after. Raises Refusal for a cycle."""
    if all(order.extras is None or not order.extras.after for order in orders):
        return list(range(len(orders)))
    before = _predecessors(orders)
    turn: list[int] = []
    state = [0] * len(before)  # 0: not visited, 1: on the way, 2: visited
    for start in range(len(orders)):
        if state[start]:
            continue
        state[start] = 1
        path = [(start, iter(before[start]))]
        while path:
            node, left = path[-1]
            following = next((each for each in left if state[each] != 2), None)
            if following is None:
                state[node] = 2
                turn.append(node)
                path.pop()
            elif state[following] == 1:
                nodes = [each for each, _ in path]
                circle = [each for each in nodes[nodes.index(following) :] if each < len(orders)]
                names = ", ".join(map(str, circle[:10])) + (", …" if len(circle) > 10 else "")
                text = f"the jobs with the indexes {names} come after each other, in a circle: none could ever start"
                raise Refusal(RefusalReason.INVALID, text)
            else:
                state[following] = 1
                path.append((following, iter(before[following])))
    return [each for each in turn if each < len(orders)]


def _predecessors(orders: list[NewJob]) -> list[list[int]]:
    """Return, for each job and behind them for each group of the batch, the jobs and groups that must end first."""
    number_of = {order.id: index for index, order in enumerate(orders)}
    before: list[list[int]] = [[] for _ in orders]
    for index, order in enumerate(orders):
        group = order.extras.group if order.extras is not None else None
        if group is not None:
            number = number_of.get(group)
            if number is None:
                number = number_of[group] = len(before)
                before.append([])
            before[number].append(index)
    for index, order in enumerate(orders):
        if order.extras is not None:
            before[index] = [number_of[id] for id in order.extras.after if id in number_of]
    return before
