"""Event streams: what happens to all jobs and workers, or to one job until it has ended."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.model import JobId
from dragoman.http.context import Door
from dragoman.http.operations import EVENTS, Operation
from dragoman.http.problems import Refused, told_as_problem
from dragoman.http.request_parsing import in_path
from dragoman.operations.schemas import JobName, Problem


async def all_events(door: Door, request: Request) -> Any:
    if request.method == "HEAD":
        return Response(media_type=EVENTS)
    return door.session.listeners.listen(door.session.streams)


async def job_events(door: Door, request: Request) -> Any:
    name = in_path(request, "id", JobName)
    job = door.broker.jobs.get(JobId(bytes.fromhex(name)))
    if job is None and door.desk.is_loading:
        raise Refused(told_as_problem(Problem(kind="loading", detail="jobs of the last run are still being read")))
    if job is None:
        detail = "there is no such job: it never was, or its outcome has been erased"
        raise Refused(told_as_problem(Problem(kind="not found", detail=detail)))
    if request.method == "HEAD":
        return Response(media_type=EVENTS)
    return door.session.listeners.listen(door.session.streams, job)


OPERATIONS = [
    Operation(
        "GET",
        "/v1/events",
        "events",
        "What happens to all jobs and workers, as it happens",
        all_events,
        {200: EVENTS},
        "events",
        problems=(429,),
    ),
    Operation(
        "GET",
        "/v1/jobs/{id}/events",
        "job-events",
        "How a job is, and what happens to it until it has ended",
        job_events,
        {200: EVENTS},
        "events",
        path_types={"id": JobName},
        problems=(404, 422, 429, 503),
    ),
]
