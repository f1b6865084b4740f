"""Decides who gets the result of a job from a listener with `payloads=false`: the principal that submitted it."""

from __future__ import annotations

from starlette.requests import Request

from dragoman.core.model import JobId
from dragoman.core.rights import ADMINISTER
from dragoman.http.context import AppContext
from dragoman.operations.schemas import JobView
from dragoman.operations.visibility import owns_job


def shows_result(context: AppContext, request: Request, view: JobView) -> bool:
    """True if the listener may show the result, or the error, of a job that the principal may read."""
    if context.shows_payloads:
        return True
    principal = context.owner(request.scope).principal
    job = context.broker.jobs.get(JobId(bytes.fromhex(view.id)))
    if job is not None:
        return owns_job(principal, job)
    # Another broker of the cluster has it. A principal that may read it without `administer` is its owner.
    return not principal.may(ADMINISTER, view.service) or _is_open(context)


def shows_group(context: AppContext, request: Request, id: str) -> bool:
    """True if the listener may show the results of a group that the principal may read."""
    if context.shows_payloads:
        return True
    principal = context.owner(request.scope).principal
    group = context.broker.job_registry.groups.by_id.get(JobId(bytes.fromhex(id)))
    if group is not None:
        return group.owner == principal.name
    return not principal.rights.administer or _is_open(context)


def _is_open(context: AppContext) -> bool:
    """True if there is no access table: everybody has all rights, and all jobs have the same owner."""
    return context.broker.principals.anyone.rights.administers_all
