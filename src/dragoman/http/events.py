"""Event streams: events of all jobs and workers, or of one job until it ends."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.model import JobId
from dragoman.http.context import AppContext
from dragoman.http.problems import HttpError, problem_response
from dragoman.http.request_parsing import in_path
from dragoman.http.route import EVENTS, Route
from dragoman.operations.schemas import ErrorView, JobIdText

LOADING = "jobs of the last run are still being read; retry in a second"


async def all_events(context: AppContext, request: Request) -> Any:
    if request.method == "HEAD":
        return Response(media_type=EVENTS)
    return context.session.subscribers.open_stream(context.session.streams)


async def job_events(context: AppContext, request: Request) -> Any:
    name = in_path(request, "id", JobIdText)
    job = context.broker.jobs.get(JobId(bytes.fromhex(name)))
    if job is None and context.operations.is_loading:
        raise HttpError(problem_response(ErrorView(kind="loading", detail=LOADING)))
    if job is None:
        detail = f"no job with id {name}; it never existed, or its outcome was deleted"
        raise HttpError(problem_response(ErrorView(kind="not found", detail=detail)))
    if request.method == "HEAD":
        return Response(media_type=EVENTS)
    return context.session.subscribers.open_stream(context.session.streams, job)


ROUTES = [
    Route(
        "GET",
        "/v1/events",
        "events",
        "Stream the events of all jobs and workers",
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
