"""Event streams: events of all jobs and workers, or of one job until it ends, as far as a principal may see them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.rights import LOCAL
from dragoman.http.context import AppContext
from dragoman.http.event_filters import EventFilter, EventsQuery
from dragoman.http.problems import HttpError, problem_response
from dragoman.http.request_parsing import in_path, in_query
from dragoman.http.route import EVENTS, Route
from dragoman.operations.schemas import JobIdText, OperationError


async def all_events(context: AppContext, request: Request) -> Any:
    query: EventsQuery = in_query(request, EventsQuery)
    if request.method == "HEAD":
        return Response(media_type=EVENTS)
    session, principal = context.session, context.owner(request.scope).principal
    if query == EventsQuery():
        return session.subscribers.open_stream(session.streams, principal)
    workers = context.broker.worker_registry.workers.values()
    chosen = EventFilter(query, principal if principal.name != LOCAL else None, workers, context.now)
    return session.subscribers.open_filtered(session.streams, principal, chosen)


async def job_events(context: AppContext, request: Request) -> Any:
    name = in_path(request, "id", JobIdText)
    principal = context.owner(request.scope).principal
    try:
        job = context.operations.permissions.visible_job(name, principal, context.session.dialect)
    except OperationError as error:
        raise HttpError(problem_response(error.problem)) from None
    if request.method == "HEAD":
        return Response(media_type=EVENTS)
    return context.session.subscribers.open_stream(context.session.streams, principal, job)


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
        problems=(422, 429),
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
