"""Requests and responses of the HTTP API, as a client or a worker writes and reads them. Without memory.

Frames are those of the carrier: a request is `[line, fields, body]`, a response `[status, fields, body]`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from dragoman.carriers.carrier import Frame, Message
from dragoman.carriers.malformed import Malformed
from dragoman.core.failure import Failure, pack_failure
from dragoman.core.infinity import inf
from dragoman.core.names import is_name
from dragoman.core.states import Outcome
from dragoman.dialects.sides import JobInfo, SubmitOptions

PROBE: Final = b"/livez"  # every broker answers it at once, even one that is overloaded
ALIVE: Final = b"alive\n"
JSON: Final = b"content-type: application/json\r\n"
BYTES: Final = b"content-type: application/octet-stream\r\n"
PROBLEM: Final = b"application/problem+json"
LONGEST: Final = 86_400.0  # seconds that a header of a call may say
RECALL: Final = b"dragoman-recall"
MOST_NAME_BYTES: Final = 128
PREFIX: Final = "urn:dragoman:"
OUTCOMES: Final = {outcome.value: outcome for outcome in Outcome}
MAX_PAYLOAD: Final = re.compile(r"max_payload is ([0-9]+) bytes\.")
WHERE: Final = re.compile(r"in the (?:query|body): |(\w+), in the path: ")

Request = list[Frame]


@dataclass(frozen=True, slots=True)
class Response:
    """A response, with its header fields by their names in lower case."""

    status: int
    fields: dict[bytes, bytes]
    body: Frame

    @property
    def is_last(self) -> bool:
        """Whether the server ends the connection behind it."""
        return self.fields.get(b"connection", b"").lower() == b"close"

    @property
    def is_done(self) -> bool:
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Problem:
    """An answer of `application/problem+json`."""

    kind: str  # in words: `no such service`
    detail: str
    is_outcome: bool = False  # of a job that was there
    failure: Failure | None = None


def check_services(services: Sequence[str]) -> str | None:
    """The reason why these names cannot be asked for or offered."""
    for service in services:
        if not is_name(service, MOST_NAME_BYTES) or not service.isprintable():
            return f"{service!r} is not a service name: 1 to {MOST_NAME_BYTES} bytes of printable text"
    return None


def path_part(name: str) -> str:
    """A name as it stands between two slashes."""
    return quote(name, safe="")


def write_call(submit_options: SubmitOptions) -> tuple[bytes, bytes]:
    """The line and the fields of a call, which all calls with the same options have in common."""
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
    return b"POST /v1/call/" + path_part(submit_options.service).encode(), b"".join(fields)


def _seconds(seconds: float) -> bytes:
    return b"null" if seconds == inf else repr(seconds).encode()


def read_response(message: Message) -> Response:
    """Raises Malformed."""
    status, block, body = message
    fields: dict[bytes, bytes] = {}
    for io in bytes(block).split(b"\n"):
        name, _, value = io.partition(b":")
        fields[name] = value
    return Response(int(bytes(status)), fields, body)


def read_problem(response: Response) -> Problem:
    """Raises Malformed if it is none: then it is not our broker that answers."""
    kind = response.fields.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != PROBLEM:
        raise Malformed("no problem", f"HTTP {response.status} came without a problem in JSON, as no broker answers")
    try:
        said = json.loads(bytes(response.body))
        word, detail = str(said["type"]), str(said.get("detail", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Malformed("bad problem", f"the problem that came with HTTP {response.status} cannot be read") from None
    error = said.get("error")
    failure = None
    if isinstance(error, dict):
        failure = Failure(str(error.get("type", "")), str(error.get("message", "")), str(error.get("detail", "")))
    return Problem(word.removeprefix(PREFIX).replace("-", " "), detail, "job" in said, failure)


def too_large(problem: Problem, size: int, what: str) -> str:
    """The sentence about a body of `size` bytes that was over the broker's limit, the same as of native clients."""
    found = MAX_PAYLOAD.fullmatch(problem.detail)
    if found is None:
        return problem.detail
    return f"{what} of {size} bytes is over the broker's max_payload {found[1]}"


def told_about(operation: str, problem: Problem) -> str:
    """The detail of a problem with an operation. Brokers say in which part of a request a field stood; a caller that
    wrote no request is told the operation instead."""
    if problem.kind != "invalid":
        return problem.detail
    found = WHERE.match(problem.detail)
    if found is None:
        return problem.detail
    field = f"{found[1]}: " if found[1] is not None else ""
    return f"{operation}: {field}{problem.detail[found.end() :]}"


def write_outcome(outcome: str, reason: str) -> bytes:
    """The view of an ended job, as far as a response tells."""
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
    wait: float  # seconds that a request for a job takes at most


def write_join(services: Sequence[str], capacity: int, lease: float) -> Request:
    form = {"services": list(services), "capacity": capacity, "lease": lease}
    return [b"POST /v1/workers", JSON, json.dumps(form).encode()]


def read_join(response: Response) -> Membership:
    """Raises Malformed."""
    try:
        said = json.loads(bytes(response.body))
        return Membership(int(said["id"]), str(said["token"]), float(said["lease"]), float(said["wait"]))
    except (ValueError, KeyError, TypeError):
        raise Malformed("bad answer", "the answer to a worker that joins cannot be read") from None


def write_next(member: Membership, wait: float, held: Iterable[str]) -> Request:
    """`held`: the attempts that the worker has, so that a job whose response was lost is given again."""
    holding = b"dragoman-holding: %s\r\n" % ",".join(held).encode()
    return [b"POST /v1/workers/%d/next?wait=%s" % (member.id, repr(wait).encode()), _token(member) + holding, b""]


def read_job(response: Response) -> tuple[str, JobInfo]:
    """The attempt's token, and the description of the job. Raises Malformed."""
    fields = response.fields
    try:
        token = fields[b"dragoman-attempt"].decode()
        timeout = fields.get(b"dragoman-timeout")
        return token, JobInfo(
            unquote(fields[b"dragoman-service"].decode()),
            fields[b"dragoman-job"].decode(),
            int(fields[b"dragoman-attempt-number"]),
            inf if timeout is None else float(timeout),
        )
    except (ValueError, KeyError):
        raise Malformed("bad job", "a job came without the fields that describe it") from None


def write_result(member: Membership, attempt: str, result: Frame) -> Request:
    return [b"POST /v1/workers/%d/result" % member.id, _about(member, attempt) + BYTES, result]


def write_failure(member: Membership, attempt: str, failure: Failure) -> Request:
    form = {"type": failure.type, "message": failure.message, "detail": failure.traceback}
    io = b"POST /v1/workers/%d/result?outcome=failed" % member.id
    return [io, _about(member, attempt) + JSON, json.dumps(form).encode()]


def write_progress(member: Membership, attempt: str, payload: Frame) -> Request:
    return [b"POST /v1/workers/%d/progress" % member.id, _about(member, attempt) + BYTES, payload]


def write_heartbeat(member: Membership) -> Request:
    return [b"POST /v1/workers/%d/heartbeat" % member.id, _token(member), b""]


def write_drain(member: Membership) -> Request:
    return [b"POST /v1/workers/%d/drain" % member.id, b"", b""]


def write_leave(member: Membership) -> Request:
    return [b"DELETE /v1/workers/%d" % member.id, _token(member), b""]


def read_recalls(response: Response) -> list[str]:
    """The attempts that are over."""
    said = response.fields.get(RECALL, b"").decode("ascii", "replace")
    return [each.strip() for each in said.split(",") if each.strip()]


def _token(member: Membership) -> bytes:
    return b"dragoman-worker-token: %s\r\n" % member.token.encode()


def _about(member: Membership, attempt: str) -> bytes:
    return _token(member) + b"dragoman-attempt: %s\r\n" % attempt.encode()
