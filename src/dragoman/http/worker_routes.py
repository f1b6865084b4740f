"""HTTP workers, in any language: join, request the next job, report its outcome, leave.

Every request renews the worker's lease. Requests about a job name the attempt by its token.
"""

from __future__ import annotations

from asyncio import CancelledError, Future, get_running_loop
from dataclasses import replace
from hmac import compare_digest
from math import inf
from typing import Annotated, Any, Literal, NoReturn

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.admission import can_offer, forbidden_work
from dragoman.core.failure import NEVER, Failure, reported_failure
from dragoman.core.limit_values import MOST_RUNNING, LimitValues, read_rate
from dragoman.core.model import Attempt, Job, Payload, Token
from dragoman.core.names import is_text
from dragoman.core.recording import record_heartbeat
from dragoman.core.rights import WORK
from dragoman.core.task_parameters import MOST_NAME, MOST_PARAMETERS, MOST_SCHEMA, read_declaration
from dragoman.http.broker_side import token_of
from dragoman.http.context import AppContext
from dragoman.http.disconnect import HANGUP, DisconnectSignal
from dragoman.http.headers import Header
from dragoman.http.job_headers import job_headers
from dragoman.http.problems import HttpError, problem, problem_response
from dragoman.http.remote_worker import PendingPoll, RemoteHttpWorker
from dragoman.http.request_parsing import body_of, in_body, in_path, in_query, is_json
from dragoman.http.route import BYTES, TEXT, Route
from dragoman.operations.schemas import ErrorView, OperationRequest, ServiceName, View
from dragoman.operations.validation import decode, explain

MOST_NAME_BYTES = 128
MOST_HELD = 1000  # jobs at once
BEING_READ = "jobs of the last run are still being read, and this may be one of them; retry in a second"

WorkerNumber = Annotated[int, Meta(ge=0, le=2**53, description="The worker's id, from the response to its joining.")]
ParameterName = Annotated[str, Meta(max_length=MOST_NAME)]
TokenText = Annotated[str, Meta(pattern="^[0-9a-f]{32}$", description="32 lower-case hex digits.")]


class WorkerLimits(OperationRequest):
    """Limits of a service that a worker declares. They hold while it is connected, if no operator has set others."""

    max_running: Annotated[int, Meta(ge=1, le=MOST_RUNNING, description="Most jobs that run at once.")] | None = None
    max_running_per_tenant: (
        Annotated[int, Meta(ge=1, le=MOST_RUNNING, description="Most jobs of one tenant that run at once.")] | None
    ) = None
    rate: Annotated[str, Meta(max_length=16, description="Rate of starts, such as `100/min`.")] | None = None


class JoinRequest(OperationRequest):
    """Services of a new worker, and its limits."""

    services: Annotated[list[ServiceName], Meta(min_length=1, max_length=64)]
    capacity: Annotated[int, Meta(ge=1, le=MOST_HELD, description="Maximum number of jobs at once.")] = 1
    name: Annotated[str, Meta(max_length=MOST_NAME_BYTES, description="Name, for people.")] = ""
    lease: Annotated[float, Meta(ge=1, description="Seconds of silence after which it counts as dead.")] | None = None
    limits: Annotated[dict[str, WorkerLimits] | None, Meta(description="Limits of services, by name.")] = None
    parameters: Annotated[
        dict[str, dict[str, Any]] | None,
        Meta(
            description="Parameters of services that are tasks, by name: a JSON Schema object with `properties` for "
            f"each, at most {MOST_SCHEMA} bytes. The worker may then refuse jobs with `unknown_parameters`."
        ),
    ] = None


class JoinedView(View):
    """Response to a worker that joined."""

    id: int
    token: TokenText  # to be sent with every request
    lease: float
    wait: float  # maximum duration of `next`
    max_payload: int


class NextRequest(OperationRequest):
    """Parameters of a request for a job."""

    wait: Annotated[float, Meta(ge=0, le=600, description="Maximum wait for a job, in seconds.")] = 30.0


class WorkerResult(OperationRequest):
    """Parameters of a report about a job."""

    outcome: Annotated[
        Literal["done", "failed", "timed-out"],
        Meta(description="`timed-out`: the worker has stopped the job at its time limit; the body is ignored."),
    ] = "done"


class WorkerFailure(OperationRequest):
    """Error of a failed job."""

    message: str
    type: str = ""
    detail: str = ""
    retry_in: Annotated[
        Annotated[float, Meta(ge=0)] | Literal["never"] | None,
        Meta(
            description="Seconds until the next attempt, or `never`: the failure is permanent. By default the options "
            "of the job decide."
        ),
    ] = None
    unknown_parameters: Annotated[
        tuple[ParameterName, ...],
        Meta(
            max_length=MOST_PARAMETERS,
            description="Names in the arguments that are no parameters of the task. The job has not begun: it waits "
            "for a worker that knows them, if there is reason to expect one. Send `retry_in` `never`, too.",
        ),
    ] = ()
    known_parameters: Annotated[
        tuple[ParameterName, ...],
        Meta(max_length=MOST_PARAMETERS, description="All parameters of the task, if some are unknown."),
    ] = ()


SECRET = Header(
    "Dragoman-Worker-Token",
    TokenText,
    "The token from the response to joining. Without `auth=token`, `Authorization: Bearer` may have it instead.",
)
ATTEMPT = Header(
    "Dragoman-Attempt", TokenText, "The attempt's token, from the response with the job.", is_required=True
)
HELD = Header("Dragoman-Holding", str, "Tokens of the attempts it has, separated by commas; others are sent again.")


async def join(context: AppContext, request: Request) -> Response:
    parsed: JoinRequest = await in_body(context, request, JoinRequest)
    session, options = context.session, context.session.options
    name = parsed.name or _address(request)
    lease = parsed.lease if parsed.lease is not None else options.lease
    if not is_text(name) or len(name.encode()) > MOST_NAME_BYTES:
        _refuse("invalid", f"a name has at most {MOST_NAME_BYTES} bytes of visible text")
    if not can_offer(parsed.services, context.broker.policy):
        _refuse("invalid", "a service's name has 1 to 128 bytes of visible text")
    if lease > options.max_lease:
        _refuse("invalid", f"lease {lease:g} is over the maximum of {options.max_lease:g} (max_lease)")
    owner = context.owner(request.scope)
    if not session.shares.allows(owner):
        _refuse("busy", f"{session.shares.problem(owner, 'workers that use HTTP', 'max_workers')}; retry later")
    forbidden = forbidden_work(owner.principal, parsed.services)
    if forbidden is not None:
        context.broker.refused_rights.note(owner.principal, WORK, parsed.services, session.dialect)
        _refuse("forbidden", forbidden)
    limits = {name: _limits(each) for name, each in (parsed.limits or {}).items()}
    parameters = {name: _parameters(each) for name, each in (parsed.parameters or {}).items()}
    origin, now = _address(request), context.now()
    remote = session.join(name, parsed.services, parsed.capacity, lease, owner, origin, now, limits, parameters)
    if remote is None:
        _refuse("busy", f"{context.broker.policy.max_services} services are known, the maximum (max_services)")
    id = remote.worker.id
    wait = min(options.long_poll, lease / 2)
    view = JoinedView(id=id, token=remote.secret, lease=lease, wait=wait, max_payload=context.max_payload)
    return Response(
        msgspec.json.encode(view), 201, headers={"location": f"/v1/workers/{id}"}, media_type="application/json"
    )


def _limits(declared: WorkerLimits) -> LimitValues:
    try:
        rate = read_rate(declared.rate) if declared.rate is not None else None
    except ValueError as error:
        _refuse("invalid", str(error))
    return LimitValues(declared.max_running, declared.max_running_per_tenant, rate if rate and rate.count else None)


def _parameters(declared: dict[str, Any]) -> dict[str, Any]:
    try:
        return read_declaration(declared)
    except ValueError as error:
        _refuse("invalid", str(error))


async def next_job(context: AppContext, request: Request) -> Response:
    remote = _worker(context, request)
    parsed: NextRequest = in_query(request, NextRequest)
    held = request.headers.get(HELD.name)
    disconnect: DisconnectSignal | None = request.scope.get("extensions", {}).get(HANGUP)
    if disconnect is not None and disconnect.is_gone:
        return Response(status_code=204)
    session = context.session
    answer: Future[Attempt | str | None] = get_running_loop().create_future()
    tokens = None if held is None else {each.strip().lower() for each in held.split(",")}
    poll = session.poll(remote, parsed.wait, tokens, answer, context.now())
    if disconnect is not None:
        disconnect.call = lambda: session.drop(poll, context.now())
    try:
        received = await answer
    except CancelledError:  # the server is closing
        session.drop(poll, context.now())
        raise
    if isinstance(received, str):
        raise HttpError(_gone(received))
    if received is None and session.is_closed:
        _refuse("draining", "the broker is shutting down; retry later")
    if received is None:
        return Response(status_code=204, headers=_recalls(remote))
    return _job(poll, received, context.now())


def _job(poll: PendingPoll, attempt: Attempt, now: float) -> Response:
    poll.is_read = True
    return Response(bytes(poll.payload), headers=job_headers(attempt, now), media_type=BYTES)


async def result(context: AppContext, request: Request) -> Response:
    parsed: WorkerResult = in_query(request, WorkerResult)
    token = _token(request)
    body = await _result_body(context, request)
    now = context.now()
    principal = context.owner(request.scope).principal
    if context.broker.attempts.is_resumable(token, principal):  # dispatched before a restart of the broker (R107)
        return await _deliver_resumable(context, token, parsed, body, request, now)
    if context.operations.is_loading and context.session.remote(in_path(request, "id", WorkerNumber)) is None:
        _refuse("loading", BEING_READ)
    remote = _worker(context, request)
    attempt = context.session.attempt(remote, token)
    if attempt is None and context.operations.is_loading:
        _refuse("loading", BEING_READ)
    if attempt is None:
        context.broker.counters.late_results += 1
        raise HttpError(_stale())
    if parsed.outcome == "done":
        is_current = context.session.succeed(remote, attempt, body, now)
    else:
        is_stopped = parsed.outcome == "timed-out"
        reason, failure = ("", None) if is_stopped else _failure(body, request)
        is_current = context.session.fail(remote, attempt, reason, failure, now, is_stopped=is_stopped)
    if not is_current:
        raise HttpError(_quarantined() if attempt.job.quarantined else _stale())
    await _stored(context, attempt.job)
    return Response(status_code=204)


async def _stored(context: AppContext, job: Job) -> None:
    """Wait until the result of a background job is stored (R103). If the store cannot write, the broker keeps the
    result and writes it as soon as possible (R101)."""
    if job.options.durable:
        stored: Future[None] = get_running_loop().create_future()
        shard = context.broker.job_registry.pending_commits.shard(job.id)
        context.runner.store_access.when_saved(lambda _: None if stored.done() else stored.set_result(None), (shard,))
        await stored


async def _deliver_resumable(
    context: AppContext, token: Token, parsed: WorkerResult, body: Payload, request: Request, now: float
) -> Response:
    session, principal = context.session, context.owner(request.scope).principal
    if parsed.outcome == "done":
        job, is_current = session.succeed_resumed(token, principal, body, now)
    else:
        is_stopped = parsed.outcome == "timed-out"
        reason, failure = ("", None) if is_stopped else _failure(body, request)  # first: an invalid body claims nothing
        failed = session.fail_resumed(token, principal, reason, failure, now, is_stopped=is_stopped)
        assert failed is not None
        job, is_current = failed
    if not is_current:
        raise HttpError(_stale())
    await _stored(context, job)
    return Response(status_code=204)


async def progress(context: AppContext, request: Request) -> Response:
    token = _token(request)
    body = await body_of(context, request.receive)
    remote = _worker(context, request)
    attempt = context.session.attempt(remote, token)
    if attempt is None or not context.session.progress(attempt, body, context.now()):
        raise HttpError(_stale())
    return Response(status_code=204, headers=_recalls(remote))


async def heartbeat(context: AppContext, request: Request) -> Response:
    remote = _worker(context, request)
    if ATTEMPT.name in request.headers:
        attempt = context.session.attempt(remote, _token(request))
        if attempt is None or attempt.job.attempt is not attempt:
            raise HttpError(_stale())
    record_heartbeat(remote.worker, "POST …/heartbeat, 204 No Content", context.now())
    return Response(status_code=204, headers=_recalls(remote))


async def leave(context: AppContext, request: Request) -> Response:
    context.session.leave(_worker(context, request), context.now())
    return Response(status_code=204)


# ---------------------------------------------------------------- the worker and the attempt of a request


def _worker(context: AppContext, request: Request) -> RemoteHttpWorker:
    """Return the worker in the path, after checking its token. Workers of other principals do not exist."""
    remote = context.session.remote(in_path(request, "id", WorkerNumber))
    if remote is None or remote.worker.owner.principal is not context.principal(request.scope):
        raise HttpError(_gone("it left, was silent for too long, or the broker was restarted; join again"))
    secret = request.headers.get(SECRET.name)
    if secret is None and context.access.has_tokens:
        secret = ""
    elif secret is None:
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        secret = secret.strip() if scheme.lower() == "bearer" else ""
    if not compare_digest(secret.encode(), remote.secret.encode()):
        detail = f"{SECRET.name} is not the token of this worker; send the one from the response to its joining."
        raise HttpError(problem(403, "wrong-token", "Wrong token", detail))
    context.session.seen(remote, context.now())
    return remote


def _token(request: Request) -> Token:
    token = token_of(request.headers.get(ATTEMPT.name, ""))
    if token is None:
        _refuse("invalid", f"{ATTEMPT.name}: send the 32 hex digits from the response with the job")
    return token


async def _result_body(context: AppContext, request: Request) -> Payload:
    try:
        return await body_of(context, request.receive)
    except HttpError as error:
        if error.response.status_code == 413:
            _end_too_large(context, request)
        raise


def _end_too_large(context: AppContext, request: Request) -> None:
    """Fail the attempt of a result that is too large: otherwise the job would be retried again and again (R16)."""
    now = context.now()
    token = token_of(request.headers.get(ATTEMPT.name, ""))
    if token is None:
        return
    length = request.headers.get("content-length")
    size = f" of {length} bytes" if length is not None else ""
    reason = f"its answer{size} is over max_payload {context.max_payload}"
    principal = context.owner(request.scope).principal
    if context.session.fail_resumed(token, principal, reason, None, now) is not None:
        return
    try:
        remote = _worker(context, request)
    except HttpError:
        return  # the response says that the body is too large
    attempt = context.session.attempt(remote, token)
    if attempt is None:
        context.broker.counters.late_results += 1
    else:
        context.session.fail(remote, attempt, reason, None, now)


_failures = msgspec.json.Decoder(WorkerFailure)


def _failure(body: Payload, request: Request) -> tuple[str, Failure | None]:
    """Return the reason, and the worker's error if the body has its parts."""
    if not is_json(request):
        return body.decode("utf-8", "replace") or "its worker gave no reason", None
    try:
        parsed = decode(_failures, body)
    except (msgspec.ValidationError, UnicodeDecodeError) as error:
        _refuse("invalid", f"in the body: {explain(error, WorkerFailure)}")
    except msgspec.DecodeError as error:
        raise HttpError(problem(400, "malformed-json", "Malformed JSON", f"The body is not JSON: {error}.")) from None
    retry_in = inf if parsed.retry_in == NEVER else parsed.retry_in
    unknown = parsed.unknown_parameters if retry_in == inf else ()
    known = parsed.known_parameters if unknown else ()
    failure = reported_failure(parsed.type, parsed.message, parsed.detail, retry_in, unknown, known)
    return failure.sentence, failure


def _address(request: Request) -> str:
    client = request.client
    return f"{client.host}:{client.port}" if client is not None else "unknown"


# ---------------------------------------------------------------- responses


def _recalls(remote: RemoteHttpWorker) -> dict[str, str]:
    """Return a header with the ended attempts of the worker."""
    ended = ",".join(token.hex() for token in remote.worker.stuck)
    return {"dragoman-recall": ended} if ended else {}


def _refuse(kind: Any, detail: str) -> NoReturn:
    raise HttpError(problem_response(ErrorView(kind=kind, detail=detail)))


def _gone(detail: str) -> Response:
    return problem(410, "gone", "No such worker", detail)


def _stale() -> Response:
    return problem(409, "stale-attempt", "Stale attempt", "This attempt has ended; the job has ended or moved on.")


def _quarantined() -> Response:
    return problem(410, "quarantined", "In quarantine", "This job has used all its attempts, and is in quarantine.")


_ID = {"id": WorkerNumber}
_OF_WORKERS = (403, 410, 422)
ROUTES = [
    Route(
        "POST",
        "/v1/workers",
        "join",
        "Join as a worker",
        join,
        {201: JoinedView},
        "workers",
        bodies=(JoinRequest,),
        problems=(400, 413, 415, 422, 429),
    ),
    Route(
        "POST",
        "/v1/workers/{id}/next",
        "next",
        "Request a job; 204 means that there is none yet",
        next_job,
        {200: BYTES, 204: None},
        "workers",
        path_types=_ID,
        query=NextRequest,
        headers=(SECRET, HELD),
        problems=(*_OF_WORKERS, 503),
    ),
    Route(
        "POST",
        "/v1/workers/{id}/result",
        "give-result",
        "Report the outcome of a job",
        result,
        {204: None},
        "workers",
        path_types=_ID,
        query=WorkerResult,
        bodies=(BYTES, TEXT, WorkerFailure),
        headers=(SECRET, ATTEMPT),
        problems=(*_OF_WORKERS, 400, 409, 413, 503),
        too_large=_end_too_large,
    ),
    Route(
        "POST",
        "/v1/workers/{id}/progress",
        "report-progress",
        "Report progress of a job to its event streams",
        progress,
        {204: None},
        "workers",
        path_types=_ID,
        bodies=(BYTES,),
        headers=(SECRET, ATTEMPT),
        problems=(*_OF_WORKERS, 409, 413),
    ),
    Route(
        "POST",
        "/v1/workers/{id}/heartbeat",
        "heartbeat",
        "Renew the lease during a job, and check that it is still needed",
        heartbeat,
        {204: None},
        "workers",
        path_types=_ID,
        headers=(SECRET, replace(ATTEMPT, is_required=False)),
        problems=(*_OF_WORKERS, 409),
    ),
    Route(
        "DELETE",
        "/v1/workers/{id}",
        "leave",
        "Leave; its jobs go to other workers, or are lost",
        leave,
        {204: None},
        "workers",
        path_types=_ID,
        headers=(SECRET,),
        problems=_OF_WORKERS,
    ),
]
