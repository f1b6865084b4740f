"""Codec of the HTTP API for clients and workers: requests and responses, without state.

Frames are those of the carrier: a request is `[line, fields, body]`, a response `[status, fields, body]`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any, Final
from urllib.parse import quote, unquote

from dragoman.carriers.carrier import Frame, Message
from dragoman.carriers.malformed import Malformed
from dragoman.core.failure import NEVER, Failure, pack_failure
from dragoman.core.infinity import inf
from dragoman.core.job_extras import is_traceparent
from dragoman.core.limit_values import LimitValues, given_limits
from dragoman.core.names import is_name
from dragoman.core.states import Outcome
from dragoman.dialects import sides
from dragoman.dialects.sides import UNAUTHENTICATED, JobExtras, JobInfo, SubmitOptions

PROBE: Final = b"/livez"  # every broker replies to it at once, even an overloaded one
ALIVE: Final = b"alive\n"
JSON: Final = b"content-type: application/json\r\n"
BYTES: Final = b"content-type: application/octet-stream\r\n"
PROBLEM: Final = b"application/problem+json"
LONGEST: Final = 86_400.0  # seconds: the maximum in a header of a call
RECALL: Final = b"dragoman-recall"
MOST_NAME_BYTES: Final = 128
PREFIX: Final = "urn:dragoman:"
OUTCOMES: Final = {outcome.value: outcome for outcome in Outcome}
MAX_PAYLOAD_IS: Final = re.compile(r"max_payload is ([0-9]+) bytes\.")
WHERE: Final = re.compile(r"in the (?:query|body): |(\w+), in the path: ")

Request = list[Frame]


@dataclass(frozen=True, slots=True)
class Response:
    """A response, with its header fields by lower-case name."""

    status: int
    fields: dict[bytes, bytes]
    body: Frame

    @property
    def is_last(self) -> bool:
        """Tell if the server closes the connection after it."""
        return self.fields.get(b"connection", b"").lower() == b"close"

    @property
    def is_done(self) -> bool:
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Problem:
    """A response of `application/problem+json`."""

    kind: str  # such as `no such service`
    detail: str
    is_outcome: bool = False  # the job existed
    failure: Failure | None = None


def check_services(services: Sequence[str]) -> str | None:
    """Return an error message if these services cannot be called or offered, else None."""
    for service in services:
        if not is_name(service, MOST_NAME_BYTES):
            return f"{service!r} is not a service name: 1 to {MOST_NAME_BYTES} bytes of visible text"
    return None


def path_part(name: str) -> str:
    """Quote a name for a path."""
    return quote(name, safe="")


def write_call(submit_options: SubmitOptions) -> tuple[bytes, bytes]:
    """Return the line and the fields of a call, which are the same for all calls with these options."""
    fields = [BYTES]
    if submit_options.timeout is not None:
        fields.append(
            b"dragoman-timeout: %s\r\n" % _seconds(submit_options.timeout if submit_options.timeout <= LONGEST else inf)
        )
    if submit_options.job_timeout is not None:
        fields.append(b"dragoman-job-timeout: %s\r\n" % _seconds(submit_options.job_timeout))
    if submit_options.priority is not None:
        fields.append(b"dragoman-priority: %d\r\n" % submit_options.priority)
    if submit_options.attempts is not None:
        fields.append(b"dragoman-attempts: %d\r\n" % submit_options.attempts)
    if submit_options.waits:
        fields.append(b"dragoman-wait-for-worker: true\r\n")
    if submit_options.tenant:
        fields.append(b"dragoman-tenant: %s\r\n" % submit_options.tenant.encode())
    return b"POST /v1/call/" + path_part(submit_options.service).encode(), b"".join(fields)


def add_field(request: bytes, name: str, text: str) -> bytes:
    """Return the request of an operation, a JSON object, with one more field. The text has no quotes."""
    body, field = request.strip(), f'"{name}": "{text}"}}'.encode()
    return b"{" + field if body in (b"", b"{}") else body[:-1] + b", " + field


def write_extras(extras: JobExtras) -> bytes:
    """Return the fields of a request that have the extras of its job."""
    fields = b""
    if extras.parent is not None:
        fields += b"dragoman-parent-job: %s\r\n" % extras.parent.hex().encode()
    if extras.traceparent:
        fields += b"traceparent: %s\r\n" % extras.traceparent.encode("ascii", "ignore")
    return fields


def _seconds(seconds: float) -> bytes:
    return b"null" if seconds == inf else repr(seconds).encode()


def read_response(message: Message) -> Response:
    """Parse a response. Raises Malformed."""
    status, block, body = message
    fields: dict[bytes, bytes] = {}
    for line in bytes(block).split(b"\n"):
        name, _, value = line.partition(b":")
        fields[name] = value
    return Response(int(bytes(status)), fields, body)


def read_problem(response: Response) -> Problem:
    """Parse a problem document. Raises Malformed if there is none: then the server is not a broker. A response 401 may
    come from a proxy in front of one."""
    if response.status == 401:
        return Problem(UNAUTHENTICATED, "HTTP 401")
    content_type = response.fields.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if content_type != PROBLEM:
        raise Malformed(
            "no problem", f"HTTP {response.status} came without a problem document; the server is not a broker"
        )
    try:
        document = json.loads(bytes(response.body))
        kind, detail = str(document["type"]), str(document.get("detail", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Malformed("bad problem", f"the problem document of HTTP {response.status} is malformed") from None
    error = document.get("error")
    failure = None
    if isinstance(error, dict):
        failure = Failure(str(error.get("type", "")), str(error.get("message", "")), str(error.get("detail", "")))
    return Problem(kind.removeprefix(PREFIX).replace("-", " "), detail, "job" in document, failure)


def too_large(problem: Problem, size: int, what: str) -> str:
    """Return the error about a body of `size` bytes over the broker's limit, in the words of native clients."""
    found = MAX_PAYLOAD_IS.fullmatch(problem.detail)
    if found is None:
        return problem.detail
    return f"{what} of {size} bytes is over the broker's max_payload {found[1]}"


def operation_error(operation: str, problem: Problem) -> str:
    """Return the detail of an operation's error. The broker names the part of the request that has a field; a caller
    that wrote no request gets the name of the operation instead."""
    if problem.kind != "invalid":
        return problem.detail
    found = WHERE.match(problem.detail)
    if found is None:
        return problem.detail
    field = f"{found[1]}: " if found[1] is not None else ""
    return f"{operation}: {field}{problem.detail[found.end() :]}"


def write_outcome(outcome: str, reason: str) -> bytes:
    """Return the view of an ended job, as far as a response has it."""
    return json.dumps({"state": "ended", "outcome": outcome, "reason": reason}).encode()


def packed(failure: Failure | None) -> bytes:
    return pack_failure(failure) if failure is not None else b""


# -------------------------------------------------------------------- workers


@dataclass(frozen=True, slots=True)
class Membership:
    """A worker as the broker knows it, from joining to leaving."""

    id: int
    token: str
    lease: float  # seconds
    wait: float  # maximum seconds of a request for a job
    max_payload: int = sides.MAX_PAYLOAD  # bytes of a result that the broker accepts


def write_join(
    services: Sequence[str],
    capacity: int,
    lease: float,
    limits: Mapping[str, LimitValues] | None = None,
    parameters: Mapping[str, dict[str, Any]] | None = None,
) -> Request:
    request: dict[str, Any] = {"services": list(services), "capacity": capacity, "lease": lease}
    if limits:
        request["limits"] = {name: given_limits(each) for name, each in limits.items()}
    if parameters:
        request["parameters"] = dict(parameters)
    return [b"POST /v1/workers", JSON, json.dumps(request).encode()]


def read_join(response: Response) -> Membership:
    """Parse the response to a joining worker. Raises Malformed."""
    try:
        view = json.loads(bytes(response.body))
        most = int(view.get("max_payload", sides.MAX_PAYLOAD))
        member = Membership(int(view["id"]), str(view["token"]), float(view["lease"]), float(view["wait"]), most)
        if not 0 <= member.lease < inf or not 0 <= member.wait < inf or not _is_field_value(member.token):
            raise ValueError("a time that is none, or a token that no header field can carry")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise Malformed("bad answer", "the response to a joining worker is malformed") from None
    return member


def _is_field_value(text: str) -> bool:
    return text.isascii() and text.isprintable()


def write_next(member: Membership, wait: float, held: Iterable[str]) -> Request:
    """`held`: attempts that the worker has, so that a job whose response was lost is sent again."""
    holding = b"dragoman-holding: %s\r\n" % ",".join(held).encode()
    return [b"POST /v1/workers/%d/next?wait=%s" % (member.id, repr(wait).encode()), _token(member) + holding, b""]


def read_job(response: Response) -> tuple[str, JobInfo]:
    """Return the attempt's token, and the description of the job. Raises Malformed."""
    fields = response.fields
    try:
        token = fields[b"dragoman-attempt"].decode()
        timeout = float(fields.get(b"dragoman-timeout", b"inf"))
        if isnan(timeout) or not _is_field_value(token):
            raise ValueError("a time-out that is not a number, or a token that no header field can carry")
        return token, JobInfo(
            unquote(fields[b"dragoman-service"].decode()),
            fields[b"dragoman-job"].decode(),
            int(fields[b"dragoman-attempt-number"]),
            timeout,
            _traceparent(fields),
            _waited(fields),
        )
    except (ValueError, KeyError):
        raise Malformed("bad job", "a job lacks header fields") from None


def _traceparent(fields: dict[bytes, bytes]) -> str:
    text = fields.get(b"traceparent", b"").decode("ascii", "replace")
    return text if is_traceparent(text) else ""


def _waited(fields: dict[bytes, bytes]) -> float | None:
    value = fields.get(b"dragoman-waited")
    waited = float(value) if value is not None else -1.0
    return waited if 0.0 <= waited < inf else None


def write_result(member: Membership, attempt: str, result: Frame) -> Request:
    return [b"POST /v1/workers/%d/result" % member.id, _about(member, attempt) + BYTES, result]


def write_failure(member: Membership, attempt: str, failure: Failure, outcome: Outcome = Outcome.FAILED) -> Request:
    request: dict[str, Any] = {"type": failure.type, "message": failure.message, "detail": failure.traceback}
    if failure.retry_in is not None:
        request["retry_in"] = NEVER if failure.is_permanent else failure.retry_in
    if failure.unknown:
        request |= {"unknown_parameters": failure.unknown, "known_parameters": failure.known}
    ending = b"timed-out" if outcome is Outcome.TIMED_OUT else b"failed"
    line = b"POST /v1/workers/%d/result?outcome=%s" % (member.id, ending)
    return [line, _about(member, attempt) + JSON, json.dumps(request).encode()]


def write_progress(member: Membership, attempt: str, payload: Frame) -> Request:
    return [b"POST /v1/workers/%d/progress" % member.id, _about(member, attempt) + BYTES, payload]


def write_heartbeat(member: Membership) -> Request:
    return [b"POST /v1/workers/%d/heartbeat" % member.id, _token(member), b""]


def write_drain(member: Membership) -> Request:
    return [b"POST /v1/workers/%d/drain" % member.id, b"", b""]


def write_leave(member: Membership) -> Request:
    return [b"DELETE /v1/workers/%d" % member.id, _token(member), b""]


def read_recalls(response: Response) -> list[str]:
    """Return the tokens of ended attempts."""
    tokens = response.fields.get(RECALL, b"").decode("ascii", "replace")
    return [each.strip() for each in tokens.split(",") if each.strip()]


def _token(member: Membership) -> bytes:
    return b"dragoman-worker-token: %s\r\n" % member.token.encode()


def _about(member: Membership, attempt: str) -> bytes:
    return _token(member) + b"dragoman-attempt: %s\r\n" % attempt.encode()
