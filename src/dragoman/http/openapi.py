"""The OpenAPI document, generated from the routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import fields
from starlette.requests import Request
from starlette.responses import Response

from dragoman.http.context import AppContext
from dragoman.http.headers import Header
from dragoman.http.problems import MEDIA_TYPE as PROBLEM
from dragoman.http.request_access import PLAIN_COOKIE, SECURE_COOKIE
from dragoman.http.request_parsing import JSON
from dragoman.http.route import TEXT, Route
from dragoman.operations.schemas import FailureView, JobIdText, View

OpenApi = dict[str, Any]
REFERENCE = "#/components/schemas/{name}"

ABOUT = """A job broker: callers submit jobs to named services, workers run them.

Times are in seconds, moments in RFC 3339 format; a job's id is 32 lower-case hex digits. Names in a path are
percent-encoded, a slash in them as `%2F`. Errors are returned as `application/problem+json`: `type` is for programs,
`detail` is a sentence for people. Any request may be rejected before it reaches its operation: 400 if it is not exact
HTTP/1.1 or its URL has a secret, 401 if it needs a token and has none, 403 if its Host or Origin is not allowed, 408 if
it is too slow, 413, 414 and 431 if it is too large, 415 if it is compressed, 503 if there are too many connections."""

TAGS = {
    "calls": "Submit a job and wait for its result.",
    "jobs": "Background jobs: stored on disk when they are accepted; their results are requested later.",
    "services": "Services: names that callers request and workers offer.",
    "workers": "Workers: list and drain all of them; run jobs as an HTTP worker.",
    "schedules": "Schedules: background jobs by cron expression or interval.",
    "access": "The access folder.",
    "listeners": "Listeners of the broker.",
    "broker": "The broker itself: version, limits, settings.",
    "events": "Event streams.",
    "health": "Health checks and metrics.",
    "about": "About this interface.",
}

# Descriptions of error statuses.
MEANINGS = {
    400: "The body is not JSON.",
    401: "The request has no valid token.",
    403: "The principal lacks the right, or the token of the worker is wrong.",
    404: "It does not exist.",
    409: "The current state does not allow it, or the job was cancelled.",
    410: "It does not exist any more.",
    413: "The body is too large (`max_payload`).",
    414: "The query is too long (`max_target`).",
    415: "The body has the wrong content type.",
    416: "The payload has fewer bytes.",
    422: "A value is not valid; `detail` tells which.",
    429: "A limit is reached. Retry after `Retry-After` seconds.",
    502: "The job failed or was lost; `type` tells which.",
    503: "The broker is shutting down or starting. Retry after `Retry-After` seconds.",
    504: "The job timed out.",
    507: "The store cannot write, so the job was not accepted.",
}

# Credentials of requests to a listener with `auth=token`; a client certificate is another.
SECURITY_SCHEMES: OpenApi = {
    "token": {"type": "http", "scheme": "bearer", "description": "Token of a principal: `dgm_` and 43 characters."},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": SECURE_COOKIE,
        "description": f"Session of a browser that has logged in at /login; without TLS its name is `{PLAIN_COOKIE}`.",
    },
}


class ProblemDetails(View):
    """Error of a request (RFC 9457)."""

    type: Annotated[str, Meta(description="Kind of the error, for programs.", examples=["urn:dragoman:not-found"])]
    title: Annotated[str, Meta(examples=["Not found"])]
    status: Annotated[int, Meta(ge=400, le=599, examples=[404])]
    detail: Annotated[str, Meta(description="Explanation for people.", examples=["there is no such job"])]
    job: JobIdText | msgspec.UnsetType = msgspec.UNSET
    error: FailureView | msgspec.UnsetType = msgspec.UNSET


def document_route(routes: Sequence[Route], *, has_login: bool = False) -> Route:
    """Return the route of the document, which describes these routes and itself. `has_login`: requests need a token."""
    written: list[bytes] = []

    async def handler(context: AppContext, request: Request) -> Response:
        if not written:
            written.append(
                msgspec.json.encode(document([*routes, itself], context.health().version, has_login=has_login))
            )
        return Response(written[0], media_type=JSON)

    summary = "This document: OpenAPI 3.1."
    itself = Route("GET", "/openapi.json", "openapi", summary, handler, {200: OpenApi}, "about")
    return itself


def document(routes: Sequence[Route], version: str, *, has_login: bool = False) -> OpenApi:
    routes = [each for each in routes if not each.is_page]
    schemas = Schemas(routes)
    paths: dict[str, OpenApi] = {}
    for route in routes:
        if has_login and not route.is_public:
            route = replace(route, problems=(*route.problems, 401))
        described = _operation_object(route, schemas)
        if has_login and route.is_public:
            described["security"] = []
        paths.setdefault(route.path, {})[route.method.lower()] = described
    used = {route.tag for route in routes}
    security: OpenApi = {"security": [{name: []} for name in SECURITY_SCHEMES]} if has_login else {}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Dragoman", "version": version, "description": ABOUT, "license": {"name": "MIT"}},
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": meaning} for name, meaning in TAGS.items() if name in used],
        "paths": paths,
        "components": {"schemas": schemas.components, **({"securitySchemes": SECURITY_SCHEMES} if has_login else {})},
        **security,
    }


class Schemas:
    """JSON Schemas of all types in the routes; named types are components."""

    def __init__(self, routes: Sequence[Route]) -> None:
        bodies = [kind for each in routes for kind in each.bodies]
        bodies += [kind for each in routes for answer in each.answers.values() for kind in _kinds(answer)]
        path_types = [kind for each in routes for kind in each.path_types.values()]
        headers = [header.kind for each in routes for header in _headers(each)]
        kinds = [kind for kind in [*bodies, *path_types, *headers, ProblemDetails] if not _is_media_type(kind)]
        schemas, self.components = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
        self._schemas = {repr(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}

    def of(self, kind: Any) -> OpenApi:
        return self._schemas[repr(kind)]


def _operation_object(route: Route, schemas: Schemas) -> OpenApi:
    made: OpenApi = {
        "operationId": route.name,
        "tags": [route.tag],
        "summary": route.summary.partition(". ")[0].removesuffix("."),
        "description": route.summary,
        "parameters": [*_in_path(route, schemas), *_in_query(route), *_in_headers(route, schemas)],
        "responses": _responses(route, schemas),
    }
    if route.bodies:
        content = _contents(route.bodies, schemas)
        made["requestBody"] = {"required": all(map(_is_needed, route.bodies)), "content": content}
    return made


def _in_path(route: Route, schemas: Schemas) -> list[OpenApi]:
    return [
        {"name": name, "in": "path", "required": True, "schema": schemas.of(kind)}
        for name, kind in route.path_types.items()
    ]


def _in_query(route: Route) -> list[OpenApi]:
    if route.query is None:
        return []
    _, components = msgspec.json.schema_components([route.query], ref_template=REFERENCE)
    schema = components[route.query.__name__]
    return [
        {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": _without_null(each)}
        for name, each in schema["properties"].items()
    ]


def _without_null(schema: OpenApi) -> OpenApi:
    """Remove null from a schema: a query parameter is left out instead."""
    if "anyOf" not in schema:
        return schema
    (kind,) = (each for each in schema["anyOf"] if each != {"type": "null"})
    return {**kind, **{name: each for name, each in schema.items() if name != "anyOf" and each is not None}}


def _in_headers(route: Route, schemas: Schemas) -> list[OpenApi]:
    return [
        {"in": "header", "name": each.name, "required": each.is_required, **_header_object(each, schemas)}
        for each in route.headers
    ]


def _responses(route: Route, schemas: Schemas) -> OpenApi:
    responses: OpenApi = {}
    for status, kind in route.answers.items():
        responses[str(status)] = {"description": DESCRIPTIONS[status]}
        if kind is not None:
            responses[str(status)]["content"] = _contents(_kinds(kind), schemas)
        if status in route.answer_headers:
            headers = route.answer_headers[status]
            responses[str(status)]["headers"] = {each.name: _header_object(each, schemas) for each in headers}
    for status in sorted(route.problems):
        responses[str(status)] = {
            "description": MEANINGS[status],
            "content": {PROBLEM: {"schema": schemas.of(ProblemDetails)}},
        }
        if status in (429, 503):
            waits = {"description": "Seconds to wait before a retry.", "schema": {"type": "string"}}
            responses[str(status)]["headers"] = {"Retry-After": waits}
    return responses


DESCRIPTIONS = {
    200: "Success.",
    201: "Created.",
    202: "The job has not ended yet.",
    204: "Success, without content.",
    206: "The requested part.",
}


def _header_object(header: Header, schemas: Schemas) -> OpenApi:
    return {"description": header.description, "schema": schemas.of(header.kind)}


def _contents(kinds: Sequence[Any], schemas: Schemas) -> OpenApi:
    contents: OpenApi = {}
    for kind in kinds:
        if not _is_media_type(kind):
            contents[JSON] = {"schema": schemas.of(kind)}
        else:
            contents[kind] = {"schema": {"type": "string"}} if kind == TEXT else {}
    return contents


def _kinds(answer: Any) -> Sequence[Any]:
    return answer if isinstance(answer, tuple) else (answer,)


def _is_media_type(kind: Any) -> bool:
    return kind is None or isinstance(kind, str)


def _is_needed(kind: Any) -> bool:
    """Tell if a body of this type is required."""
    return not _is_media_type(kind) and any(each.required for each in fields(kind))


def _headers(route: Route) -> list[Header]:
    answer_headers: Mapping[int, tuple[Header, ...]] = route.answer_headers
    return [*route.headers, *(header for headers in answer_headers.values() for header in headers)]
