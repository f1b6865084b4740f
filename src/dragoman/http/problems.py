"""Errors as HTTP tells them: application/problem+json (RFC 9457)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"


def problem(status: int, kind: str, title: str, detail: str, headers: Iterable[tuple[str, str]] = ()) -> Response:
    """A response that says what went wrong: `kind` to programs (`no-such-service`), the rest to people."""
    body = problem_body(status, kind, title, detail)
    return Response(body, status, headers=dict(headers), media_type=MEDIA_TYPE)


def problem_body(status: int, kind: str, title: str, detail: str) -> bytes:
    return msgspec.json.encode({"type": f"urn:dragoman:{kind}", "title": title, "status": status, "detail": detail})
