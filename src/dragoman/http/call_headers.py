"""Options of a call from its headers, parsed once for all calls with the same headers."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from dragoman.core.job_extras import given_extras
from dragoman.core.model import JobId
from dragoman.core.options import DEFAULT_PRIORITY, JobOptions
from dragoman.core.tenants import tenant_problem
from dragoman.http.headers import Header
from dragoman.http.options import ListenerOptions
from dragoman.http.problems import HttpError, problem_response
from dragoman.operations.schemas import Attempts, ErrorView, JobTimeout, Key, Parent, Priority, Tenant
from dragoman.operations.validation import explain

if TYPE_CHECKING:
    from starlette.types import Scope

CACHE_SIZE = 1024  # different sets of headers that are cached
LONGEST_CACHED = 256  # bytes; longer ones are not cached

PARENT_HEADER = Header(
    "Dragoman-Parent-Job", Parent, "Id of the job whose handler submits this one. Python clients send it by themselves."
)
TRACE_HEADER = Header(
    "traceparent", str, "W3C Trace Context, which the worker receives with the job. An invalid one is ignored."
)
HEADERS = (
    Header("Dragoman-Timeout", JobTimeout | None, "Maximum time until the response, in seconds; null: no limit."),
    Header("Dragoman-Job-Timeout", JobTimeout | None, "Maximum duration of one attempt, in seconds; null: no limit."),
    Header("Dragoman-Priority", Priority, "0 to 9; higher is dispatched earlier. A step is worth 60 s of waiting."),
    Header("Dragoman-Attempts", Attempts, "Maximum number of attempts, each at one worker."),
    Header("Dragoman-Wait-For-Worker", bool, "Wait for a worker even if none offers the service."),
    Header("Dragoman-Tenant", Tenant, "Customer or account that the job is for; tenants take turns."),
    Header("Idempotency-Key", Key, "A second call with this key and payload gets the result of the first."),
    PARENT_HEADER,
    TRACE_HEADER,
)
KINDS = {header.name.lower().encode(): header for header in HEADERS}
KEY = b"idempotency-key"
TENANT = b"dragoman-tenant"
PARENT = b"dragoman-parent-job"
TRACE = b"traceparent"


class CallHeaders:
    """Parsed headers of a call."""

    __slots__ = ("extras", "key", "options", "timeout")

    def __init__(self, headers: dict[bytes, Any], options: ListenerOptions) -> None:
        self.timeout: float = headers.get(b"dragoman-timeout") or inf
        self.key: str | None = headers.get(KEY)
        parent: str | None = headers.get(PARENT)
        parent_id = JobId(bytes.fromhex(parent)) if parent is not None else None
        self.extras = given_extras(parent_id, headers.get(TRACE), headers.get(TENANT, ""))
        default = inf if b"dragoman-timeout" in headers else options.job_timeout  # the total limit suffices
        self.options = JobOptions(
            queue_timeout=options.queue_timeout or inf,
            job_timeout=headers.get(b"dragoman-job-timeout", default) or inf,
            attempts=headers.get(b"dragoman-attempts", options.attempts),
            priority=headers.get(b"dragoman-priority", DEFAULT_PRIORITY),
            waits=headers.get(b"dragoman-wait-for-worker", False),
        )


class CallHeadersCache:
    """Parsed headers of calls, cached."""

    def __init__(self, options: ListenerOptions) -> None:
        self._options = options
        self._known: dict[tuple[tuple[bytes, bytes], ...], CallHeaders] = {}

    def of(self, scope: Scope) -> CallHeaders:
        headers = tuple(each for each in scope["headers"] if each[0] in KINDS)
        parsed = self._known.get(headers)
        if parsed is None:
            parsed = CallHeaders(_read(headers), self._options)
            if (
                parsed.key is None
                and parsed.extras is None
                and sum(len(value) for _, value in headers) <= LONGEST_CACHED
            ):
                if len(self._known) >= CACHE_SIZE:
                    self._known.clear()
                self._known[headers] = parsed
        return parsed


def _read(headers: tuple[tuple[bytes, bytes], ...]) -> dict[bytes, Any]:
    values: dict[bytes, Any] = {}
    for name, value in headers:
        header = KINDS[name]
        if name == TRACE:
            values[name] = value.decode("ascii", "replace") if name not in values else ""  # two are invalid
            continue
        if name in values:
            _reject(header, "the header must not be repeated")
        try:
            values[name] = msgspec.convert(value.decode(), header.kind, strict=False)
        except UnicodeDecodeError:
            _reject(header, "the value is not UTF-8")
        except msgspec.ValidationError as error:
            _reject(header, explain(error, header.kind))
        problem = tenant_problem(values[name]) if name == TENANT else None
        if problem is not None:
            _reject(header, problem)
    return values


def _reject(header: Header, detail: str) -> NoReturn:
    raise HttpError(problem_response(ErrorView(kind="invalid", detail=f"{header.name}: {detail}")))
