"""Predecessors in requests: the jobs and groups that a new job comes after, with the rights over them."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import Final

from dragoman.core.broker import Broker
from dragoman.core.groups import PRESENT, Group
from dragoman.core.job_extras import JobExtras, JobInput
from dragoman.core.model import Job, JobId, Payload
from dragoman.core.rights import Principal
from dragoman.core.shares import administers, share_problem
from dragoman.operations.schemas import EnqueueRequest, OperationError
from dragoman.operations.targets import LOADING
from dragoman.operations.visibility import reads_group, reads_job, sees_group, sees_job

NONE: Final[frozenset[JobId]] = frozenset()


def linked_extras(
    extras: JobExtras | None,
    request: EnqueueRequest,
    payload: Payload,
    broker: Broker,
    principal: Principal,
    foreign: Container[JobId] = NONE,
) -> JobExtras:
    """Return the extras of a job that comes after others, with those that it has anyway. Raises OperationError.
    `foreign`: predecessors in other shards, which are checked there."""
    input = JobInput(request.input)
    check_input(len(request.after), input, payload)
    before = tuple([JobId(bytes.fromhex(id)) for id in request.after])
    for id in before:
        if id not in foreign:
            check_predecessor(id, broker, principal, input)
    check_links(broker, principal, len(before))
    runs = request.after_failure == "run"
    return replace(extras or JobExtras(), after=before, runs_after_failure=runs, input=input)


def check_input(predecessors: int, input: JobInput, payload: Payload) -> None:
    """Raise OperationError for an input that the job cannot have."""
    if input is JobInput.PAYLOAD:
        return
    if not predecessors:
        raise OperationError("invalid", f"input={input.value} needs jobs whose results it takes: name them in `after`")
    if input is JobInput.RESULT and (predecessors != 1 or payload):
        problem = f"{predecessors} jobs in `after`" if predecessors != 1 else f"a payload of {len(payload)} bytes"
        raise OperationError(
            "invalid", f"input=result with {problem}: it takes the result of one job as its payload; use input=results"
        )


def check_links(broker: Broker, principal: Principal, more: int) -> None:
    """Raise OperationError if there are too many links between jobs, or too many of this principal (R254)."""
    shares, name = broker.job_registry.links.shares, principal.name
    if not more or shares.allows_holder(name, more, is_administrator=administers(principal)):
        return
    if shares.taken + more > shares.most:
        text = f"jobs wait for other jobs in {shares.taken} cases, of at most {shares.most} (max_links)"
    else:
        things = "cases in which jobs wait for other jobs"
        text = share_problem(name, shares.held(name), shares.taken, shares.most, things, "max_links")
    raise OperationError("busy", f"{text}; retry later")


def check_predecessor(id: JobId, broker: Broker, principal: Principal, input: JobInput) -> None:
    """Raise OperationError unless a job of this principal may come after this job or group."""
    job = broker.jobs.get(id)
    if job is not None and sees_job(principal, job):
        check_job(job, principal, input)
    elif job is not None or find_group(id, broker, principal, input) is None:
        raise missing(id.hex(), broker)


def check_job(job: Job, principal: Principal, input: JobInput) -> None:
    """Raise OperationError for a job that no job of this principal may come after."""
    if not job.options.durable:
        detail = f"job {job.id.hex()} is a call, which ends with its caller; a job may come after background jobs only"
        raise OperationError("invalid", detail)
    if input is not JobInput.PAYLOAD and not reads_job(principal, job):
        detail = f"{principal.name} may not read the result of job {job.id.hex()}, which belongs to another principal"
        raise OperationError("forbidden", f"{detail}; use input=payload")


def find_group(id: JobId, broker: Broker, principal: Principal, input: JobInput) -> Group | None:
    """Return the group with this id, or None if the principal sees none. Raises OperationError."""
    group = broker.job_registry.groups.by_id.get(id)
    if group is None or not sees_group(principal, group):
        return None
    if input is JobInput.RESULT:
        detail = f"input=result with group {id.hex()}: it takes the result of one job as its payload; use input=results"
        raise OperationError("invalid", detail)
    if input is JobInput.RESULTS:
        if not reads_group(principal, group):
            detail = f"{principal.name} may not read the results of group {id.hex()} of another principal"
            raise OperationError("forbidden", f"{detail}; use input=payload")
        deleted = sum(letter != PRESENT for letter in group.gone)
        if deleted:
            detail = f"results of {deleted} jobs of group {id.hex()} were deleted; use input=payload"
            raise OperationError("not found", f"after: {detail}")
    return group


def missing(id: str, broker: Broker) -> OperationError:
    if broker.job_registry.is_loading:
        return OperationError("loading", LOADING)
    detail = f"after: no job or group has id {id}: it never existed, or its outcome was deleted"
    return OperationError("not found", detail)
