"""Routes to the desk: background jobs, services, workers and recurring jobs, asked about and changed over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
from msgspec import Meta
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from dragoman.http.context import AppContext
from dragoman.http.headers import Header
from dragoman.http.operation_call import call_for_result, call_operation
from dragoman.http.operations import BYTES, HttpOperation
from dragoman.http.outcomes import outcome_response
from dragoman.http.preferences import key_of, preferred_wait
from dragoman.http.problems import HttpError, problem
from dragoman.http.request_parsing import JSON, body_of, in_body, in_path, in_query, is_json, without
from dragoman.operations.schemas import (
    DrainRequest,
    EmptyRequest,
    EnqueueRequest,
    JobIdText,
    JobRef,
    JobsView,
    JobView,
    ListJobsRequest,
    PauseRequest,
    PurgeRequest,
    PurgeView,
    ResultRequest,
    ScheduleRef,
    ScheduleRequest,
    SchedulesView,
    ScheduleView,
    ServiceName,
    ServiceRef,
    ServicesView,
    ServiceView,
    WhyView,
    WorkerRef,
    WorkersView,
    WorkerView,
)
from dragoman.operations.views import show_result

WorkerNumber = Annotated[int, Meta(ge=0, le=2**53, description="A worker's number, as `/v1/workers` lists it.")]
CronName = Annotated[str, Meta(min_length=1, max_length=128, description="What a recurring job is called.")]

# What comes by a path stands in no body.
OrderQuery = without(EnqueueRequest, "OrderQuery", "payload", "payload_base64", open=["service"])
ResultQuery = without(ResultRequest, "ResultQuery", "id")
PauseBody = without(PauseRequest, "PauseBody", "name")
PurgeBody = without(PurgeRequest, "PurgeBody", "name")
DrainBody = without(DrainRequest, "DrainBody", "id")
CronBody = without(ScheduleRequest, "CronBody", "name")

Handler = Callable[[AppContext, Request], Awaitable[Response]]


def json_response(view: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(view), status, headers, media_type=JSON)


# ---------------------------------------------------------------- jobs


async def enqueue(door: AppContext, request: Request) -> Response:
    order, payload = await _order(door, request)
    order.key = key_of(request, order.key)
    view = await call_operation(door, request, "enqueue", order, payload)
    headers = {"Location": f"/v1/jobs/{view.id}"}
    wait = preferred_wait(request)
    if wait is not None:
        headers["Preference-Applied"] = f"wait={wait:g}"
    elif view.state != "ended":  # else it is an older one of the same key, and how it ended is known
        return json_response(view, 202, headers)
    view, result, failure = await call_for_result(door, request, "result", ResultRequest(id=view.id, wait=wait or 0.0))
    if view.state != "ended":
        return json_response(view, 202, headers)
    show_result(view, result, failure)
    return json_response(view, 200, headers)


async def _order(door: AppContext, request: Request) -> tuple[EnqueueRequest, bytes]:
    """Whoever names the service in the query sends a payload as it is; else the body is an order."""
    if "service" in request.query_params:
        said = in_query(request, OrderQuery)
        return EnqueueRequest(**asdict(said)), await body_of(door, request)
    if not is_json(request):
        detail = f"Send an order as {JSON}, or name the service in the query and send the payload as it is."
        raise HttpError(problem(415, "wrong-content-type", "Wrong content type", detail))
    in_query(request, EmptyRequest)
    return await in_body(door, request, EnqueueRequest), b""


async def jobs(door: AppContext, request: Request) -> Response:
    form = in_query(request, ListJobsRequest)
    view = await call_operation(door, request, "jobs", form)
    if view.after is None:
        return json_response(view)
    said = {**msgspec.to_builtins(form), "after": view.after}
    query = urlencode(
        {name: str(each).lower() if each is True or each is False else each for name, each in said.items()}
    )
    return json_response(view, headers={"Link": f'</v1/jobs?{query}>; rel="next"'})


async def result(door: AppContext, request: Request) -> Response:
    id = in_path(request, "id", JobIdText)
    wait = in_query(request, ResultQuery).wait
    view, result, failure = await call_for_result(door, request, "result", ResultRequest(id=id, wait=wait))
    if view.state != "ended":
        return json_response(view, 202)
    return outcome_response(view.id, view.outcome, view.reason, result, failure)


async def retry(door: AppContext, request: Request) -> Response:
    view = await call_operation(door, request, "retry", JobRef(id=in_path(request, "id", JobIdText)))
    return json_response(view, 202, {"Location": f"/v1/jobs/{view.id}"})


# ---------------------------------------------------------------- the rest, which is all alike


def _plain(question: str) -> Handler:
    """A question in which nothing is said."""

    async def handler(door: AppContext, request: Request) -> Response:
        view = await call_operation(door, request, question, EmptyRequest())
        return json_response(view)

    return handler


def _about(question: str, form: Any, name: str, kind: Any, body: Any = None) -> Handler:
    """A question about what the path names. `body`: the form of what else is said."""

    async def handler(door: AppContext, request: Request) -> Response:
        named = {name: in_path(request, name, kind)}
        said = asdict(await in_body(door, request, body)) if body is not None else {}
        view = await call_operation(door, request, question, form(**named, **said))
        return json_response(view)

    return handler


def _of_job(question: str) -> Handler:
    return _about(question, JobRef, "id", JobIdText)


def _of_service(question: str, form: Any = ServiceRef, body: Any = None) -> Handler:
    return _about(question, form, "name", ServiceName, body)


def _of_worker(question: str, form: Any = WorkerRef, body: Any = None) -> Handler:
    return _about(question, form, "id", WorkerNumber, body)


def _of_cron(question: str, form: Any = ScheduleRef, body: Any = None) -> Handler:
    return _about(question, form, "name", CronName, body)


JOB = {"id": JobIdText}
SERVICE = {"name": ServiceName}
WORKER = {"id": WorkerNumber}
CRON = {"name": CronName}
WRITES = (503, 507)  # what changes something waits for the diary, which may be loading, full or out of order

LOCATION = Header("Location", str, "Where the job is: `/v1/jobs/{id}`.")
APPLIED = Header("Preference-Applied", str, "`wait=30`: the wait that was preferred.")
LINK = Header("Link", str, '`<…>; rel="next"`: the next page, if there are more.')

OPERATIONS = [
    HttpOperation(
        "POST",
        "/v1/jobs",
        "enqueue",
        "Enqueue a background job. It is on disk when the answer comes. The body is an order in JSON, or, if the query "
        "names the service, the payload as it is, whatever its content type; the query then says what an order would. "
        "With `Prefer: wait=30` the answer is 200 with the outcome, if there is one within that many seconds; so it is "
        "if the job joins one of the same key that has ended.",
        enqueue,
        {202: JobView, 200: JobView},
        "jobs",
        query=OrderQuery,
        bodies=(EnqueueRequest, BYTES),
        headers=(
            Header("Idempotency-Key", str, "A second order with the same key and payload joins the first job."),
            Header("Prefer", str, "`wait=30`: wait so many seconds for the outcome."),
        ),
        problems=(400, 409, 413, 415, 422, 429, *WRITES),
        answer_headers={200: (LOCATION, APPLIED), 202: (LOCATION, APPLIED)},
    ),
    HttpOperation(
        "GET",
        "/v1/jobs",
        "jobs",
        "List jobs, the newest first. Where there are more, `after` is what to ask the next page with, and the Link "
        "header is the next page's address.",
        jobs,
        {200: JobsView},
        "jobs",
        query=ListJobsRequest,
        problems=(404, 422, 503),
        answer_headers={200: (LINK,)},
    ),
    HttpOperation(
        "GET",
        "/v1/jobs/{id}",
        "job",
        "Show one job, with its result once it has ended.",
        _of_job("job"),
        {200: JobView},
        "jobs",
        JOB,
        problems=(404, 422, 503),
    ),
    HttpOperation(
        "DELETE",
        "/v1/jobs/{id}",
        "cancel",
        "Cancel a job, in whatever state it is; one that has ended already is a conflict.",
        _of_job("cancel"),
        {200: JobView},
        "jobs",
        JOB,
        problems=(404, 409, 422, *WRITES),
    ),
    HttpOperation(
        "GET",
        "/v1/jobs/{id}/result",
        "result",
        "The bytes of a job's result. 202 with the job if it has not ended, after so many seconds of waiting; a "
        "problem if it did not end well: 502 failed or lost (`type` tells which), 504 timed out, 409 cancelled.",
        result,
        {200: BYTES, 202: JobView},
        "jobs",
        JOB,
        query=ResultQuery,
        problems=(404, 409, 422, 502, 503, 504),
    ),
    HttpOperation(
        "POST",
        "/v1/jobs/{id}/retry",
        "retry",
        "Retry a job in quarantine: makes a new job with its payload, whose `retry_of` names it. The job leaves the "
        "quarantine, and its `retried_as` names the new one.",
        retry,
        {202: JobView},
        "jobs",
        JOB,
        problems=(404, 409, 422, 429, *WRITES),
        answer_headers={202: (LOCATION,)},
    ),
    HttpOperation(
        "GET",
        "/v1/jobs/{id}/why",
        "why",
        "Why a job is not running, or how it ended, in one sentence.",
        _of_job("why"),
        {200: WhyView},
        "jobs",
        JOB,
        problems=(404, 422, 503),
    ),
    HttpOperation(
        "GET",
        "/v1/services",
        "services",
        "List services: what waits and runs, and who serves.",
        _plain("services"),
        {200: ServicesView},
        "services",
    ),
    HttpOperation(
        "GET",
        "/v1/services/{name}",
        "service",
        "Show one service.",
        _of_service("service"),
        {200: ServiceView},
        "services",
        SERVICE,
        problems=(404, 422),
    ),
    HttpOperation(
        "POST",
        "/v1/services/{name}/pause",
        "pause",
        "Hand out no jobs of this service until it is resumed. They go on arriving, and what runs may end.",
        _of_service("pause", PauseRequest, PauseBody),
        {200: ServiceView},
        "services",
        SERVICE,
        bodies=(PauseBody,),
        problems=(400, 413, 415, 422, 429, *WRITES),
    ),
    HttpOperation(
        "POST",
        "/v1/services/{name}/resume",
        "resume",
        "Hand out jobs of this service again.",
        _of_service("resume"),
        {200: ServiceView},
        "services",
        SERVICE,
        problems=(404, 422, *WRITES),
    ),
    HttpOperation(
        "POST",
        "/v1/services/{name}/purge",
        "purge",
        "Cancel the jobs of this service that wait or are delayed; of those that have ended, if `states` says so, "
        "forget the outcomes. What runs is left alone.",
        _of_service("purge", PurgeRequest, PurgeBody),
        {200: PurgeView},
        "services",
        SERVICE,
        bodies=(PurgeBody,),
        problems=(400, 404, 413, 415, 422, *WRITES),
    ),
    HttpOperation(
        "GET",
        "/v1/workers",
        "workers",
        "List workers of every dialect, and what each is at.",
        _plain("workers"),
        {200: WorkersView},
        "workers",
    ),
    HttpOperation(
        "GET",
        "/v1/workers/{id}",
        "worker",
        "Show one worker.",
        _of_worker("worker"),
        {200: WorkerView},
        "workers",
        WORKER,
        problems=(404, 422),
    ),
    HttpOperation(
        "POST",
        "/v1/workers/{id}/drain",
        "drain",
        "Give a worker no more jobs, and let it finish what it holds. Then it is told to end; one whose `comes_back` "
        "is true would join again, so it stays connected without jobs instead. With `now` what it holds is taken from "
        "it, and it is dismissed at once.",
        _of_worker("drain", DrainRequest, DrainBody),
        {200: WorkerView},
        "workers",
        WORKER,
        bodies=(DrainBody,),
        problems=(400, 404, 413, 415, 422, *WRITES),
    ),
    HttpOperation(
        "GET",
        "/v1/cron",
        "recurring",
        "List recurring jobs.",
        _plain("recurring"),
        {200: SchedulesView},
        "cron",
    ),
    HttpOperation(
        "GET",
        "/v1/cron/{name}",
        "recurrence",
        "Show one recurring job.",
        _of_cron("recurrence"),
        {200: ScheduleView},
        "cron",
        CRON,
        problems=(404, 422),
    ),
    HttpOperation(
        "PUT",
        "/v1/cron/{name}",
        "recur",
        "Make a recurring job, or put another in its place. Say one of `cron` and `every`.",
        _of_cron("recur", ScheduleRequest, CronBody),
        {200: ScheduleView},
        "cron",
        CRON,
        bodies=(CronBody,),
        problems=(400, 413, 415, 422, 429, *WRITES),
    ),
    HttpOperation(
        "DELETE",
        "/v1/cron/{name}",
        "stopRecurring",
        "Remove a recurring job. Jobs that it has made already are left alone.",
        _of_cron("stop recurring"),
        {200: ScheduleView},
        "cron",
        CRON,
        problems=(404, 422, *WRITES),
    ),
    HttpOperation(
        "POST",
        "/v1/cron/{name}/pause",
        "pauseRecurring",
        "Make no more jobs of it until it is resumed.",
        _of_cron("pause recurring"),
        {200: ScheduleView},
        "cron",
        CRON,
        problems=(404, 422, *WRITES),
    ),
    HttpOperation(
        "POST",
        "/v1/cron/{name}/resume",
        "resumeRecurring",
        "Make jobs of it again, from now on.",
        _of_cron("resume recurring"),
        {200: ScheduleView},
        "cron",
        CRON,
        problems=(404, 422, *WRITES),
    ),
]
