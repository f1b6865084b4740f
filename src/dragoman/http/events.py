"""Event streams: events of all jobs and workers, or of one job until it ends, as far as a principal may see them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.model import JobId
from dragoman.core.rights import LOCAL
from dragoman.http.context import AppContext
from dragoman.http.event_filters import EventFilter, EventsQuery
from dragoman.http.operation_call import call_operation
from dragoman.http.problems import HttpError, problem_response
from dragoman.http.request_parsing import in_path, in_query
from dragoman.http.route import EVENTS, Route
from dragoman.operations.event_sources import EventSources
from dragoman.operations.schemas import JobIdText, JobRef, OperationError
from dragoman.operations.table import JOB


async def all_events(context: AppContext, request: Request) -> Any:
    query: EventsQuery = in_query(request, EventsQuery)
    if request.method == "HEAD":
        return Response(media_type=EVENTS)
    session, principal = context.session, context.owner(request.scope).principal
    sources = context.operations.event_sources
    if query == EventsQuery() and sources is None:
        return session.subscribers.open_stream(session.streams, principal)
    workers = context.broker.worker_registry.workers.values()
    chosen = EventFilter(query, principal if principal.name != LOCAL else None, workers, context.now)
    return session.subscribers.open_filtered(session.streams, principal, chosen, sources)


async def job_events(context: AppContext, request: Request) -> Any:
    name = in_path(request, "id", JobIdText)
    sources = context.operations.event_sources
    if sources is not None:
        return await _job_events_in_cluster(context, request, name, sources)
    principal = context.owner(request.scope).principal
    try:
        job = context.operations.permissions.visible_job(name, principal, context.session.dialect)
    except OperationError as error:
        raise HttpError(problem_response(error.problem)) from None
    if request.method == "HEAD":
        return Response(media_type=EVENTS)
    return context.session.subscribers.open_stream(context.session.streams, principal, job)


async def _job_events_in_cluster(context: AppContext, request: Request, name: str, sources: EventSources) -> Any:
    """Open the stream of a job of any broker. The operation `job` checks that the principal may see it."""
    await call_operation(context, request, JOB.name, JobRef(id=name))
    if request.method == "HEAD":
        return Response(media_type=EVENTS)
    session, owner = context.session, context.owner(request.scope)
    return session.subscribers.follow(session.streams, owner, JobId(bytes.fromhex(name)), sources)


ROUTES = [
    Route(
        "GET",
        "/v1/events",
        "events",
        "Stream the events of all jobs and workers that the client may see, or of those that the filters choose",
        all_events,
        {200: EVENTS},
        "events",
        query=EventsQuery,
        problems=(422, 429, 503),
    ),
    Route(
        "GET",
        "/v1/jobs/{id}/events",
        "job-events",
        "Stream the state and the events of a job until it ends",
        job_events,
        {200: EVENTS},
        "events",
        path_types={"id": JobIdText},
        problems=(404, 422, 429, 503),
    ),
]
