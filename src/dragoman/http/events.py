"""Event streams: events of all jobs and workers, or of one job until it ends, as far as a principal may see them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from dragoman.http.context import AppContext
from dragoman.http.problems import HttpError, problem_response
from dragoman.http.request_parsing import in_path
from dragoman.http.route import EVENTS, Route
from dragoman.operations.schemas import JobIdText, OperationError


async def all_events(context: AppContext, request: Request) -> Any:
    if request.method == "HEAD":
        return Response(media_type=EVENTS)
    return context.session.subscribers.open_stream(context.session.streams, context.owner(request.scope).principal)


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
        "Stream the events of all jobs and workers that the client may see",
        all_events,
        {200: EVENTS},
        "events",
        problems=(429,),
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
