"""Declaration of a route, used for dispatching requests and for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from dragoman.http.context import AppContext
from dragoman.http.headers import Header

BYTES = "application/octet-stream"
EVENTS = "text/event-stream"
TEXT = "text/plain"


@dataclass(frozen=True, slots=True)
class Route:
    """A route of the HTTP listener."""

    method: str
    path: str
    name: str
    summary: str
    handler: Callable[[AppContext, Request], Awaitable[Response]]
    answers: Mapping[int, Any]  # by status: a schema, a media type, several of these, or None for no body
    tag: str
    path_types: Mapping[str, Any] = field(default_factory=dict)  # types of the names in the path
    query: type[Any] | None = None  # its fields are the query parameters
    bodies: tuple[Any, ...] = ()  # allowed schemas and media types of the body
    headers: tuple[Header, ...] = ()
    problems: tuple[int, ...] = ()  # statuses of problem+json responses
    too_large: Callable[[AppContext, Request], None] | None = None  # called if the handler does not get the request
    answer_headers: Mapping[int, tuple[Header, ...]] = field(default_factory=dict)  # documented, by status
    is_public: bool = False  # served to requests without a known principal
    is_page: bool = False  # for people: not in the OpenAPI document
