"""Error responses: application/problem+json (RFC 9457)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from starlette.responses import Response

from dragoman.operations.schemas import ErrorView

MEDIA_TYPE = "application/problem+json"

# Status and title of each error.
STATUSES = {
    "not found": (404, "Not found"),
    "no such service": (404, "No such service"),
    "forbidden": (403, "Forbidden"),
    "invalid": (422, "Not valid"),
    "too large": (413, "Too large"),
    "conflict": (409, "Conflict"),
    "key reused": (409, "Key reused"),
    "busy": (429, "Busy"),
    "draining": (503, "Draining"),
    "loading": (503, "Loading"),
    "store unavailable": (507, "The store cannot write"),
    "partitioned": (503, "Partitioned"),
    "internal": (500, "Internal error"),
}
FORBIDDEN = "forbidden: "  # begins the core's reason
RETRY_AFTER = {"busy": "1", "loading": "1", "draining": "5", "partitioned": "3"}


class HttpError(Exception):
    """Ends a request with this response."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


def problem(status: int, kind: str, title: str, detail: str, headers: Iterable[tuple[str, str]] = ()) -> Response:
    """Return an error response. `kind` is for programs (`no-such-service`), title and detail are for people."""
    body = problem_body(status, kind, title, detail)
    return Response(body, status, headers=dict(headers), media_type=MEDIA_TYPE)


def problem_body(status: int, kind: str, title: str, detail: str) -> bytes:
    return msgspec.json.encode({"type": f"urn:dragoman:{kind}", "title": title, "status": status, "detail": detail})


def problem_response(error: ErrorView, headers: Iterable[tuple[str, str]] = ()) -> Response:
    status, title = STATUSES[error.kind]
    more = [("retry-after", RETRY_AFTER[error.kind])] if error.kind in RETRY_AFTER else []
    detail = error.detail.removeprefix(FORBIDDEN)  # a sentence about the principal, wherever it was refused
    return problem(status, error.kind.replace(" ", "-"), title, detail, [*headers, *more])
