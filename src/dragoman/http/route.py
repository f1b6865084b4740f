"""One route of the HTTP listener, as data. A list of them finds handlers, and is written as the OpenAPI document."""

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
    method: str
    path: str
    name: str
    summary: str
    handler: Callable[[AppContext, Request], Awaitable[Response]]
    answers: Mapping[int, Any]  # by status: a form's type, a media type, several of these, or None for no body
    tag: str
    path_types: Mapping[str, Any] = field(default_factory=dict)  # of the names in the path
    query: type[Any] | None = None  # its fields are the query's parameters
    bodies: tuple[Any, ...] = ()  # forms and media types, one of which the body is
    headers: tuple[Header, ...] = ()
    problems: tuple[int, ...] = ()  # statuses that come as problem+json
    too_large: Callable[[AppContext, Request], None] | None = None  # what to do if the handler does not see it for that
    answer_headers: Mapping[int, tuple[Header, ...]] = field(default_factory=dict)  # worth knowing, by status
