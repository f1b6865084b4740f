"""Event streams: what happens to all jobs and workers, or to one job until it has ended."""

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


async def all_events(context: AppContext, request: Request) -> Any:
    if request.method == "HEAD":
        return Response(media_type=EVENTS)
    return context.session.listeners.listen(context.session.streams)


async def job_events(context: AppContext, request: Request) -> Any:
    name = in_path(request, "id", JobIdText)
    job = context.broker.jobs.get(JobId(bytes.fromhex(name)))
    if job is None and context.operations.is_loading:
        raise HttpError(problem_response(ErrorView(kind="loading", detail="jobs of the last run are still being read")))
    if job is None:
        detail = "there is no such job: it never was, or its outcome has been erased"
        raise HttpError(problem_response(ErrorView(kind="not found", detail=detail)))
    if request.method == "HEAD":
        return Response(media_type=EVENTS)
    return context.session.listeners.listen(context.session.streams, job)


ROUTES = [
    Route(
        "GET",
        "/v1/events",
        "events",
        "What happens to all jobs and workers, as it happens",
        all_events,
        {200: EVENTS},
        "events",
        problems=(429,),
    ),
    Route(
        "GET",
        "/v1/jobs/{id}/events",
        "job-events",
        "How a job is, and what happens to it until it has ended",
        job_events,
        {200: EVENTS},
        "events",
        path_types={"id": JobIdText},
        problems=(404, 422, 429, 503),
    ),
]
