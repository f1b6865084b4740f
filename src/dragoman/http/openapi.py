"""The OpenAPI document, made of the same operations as the routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dragoman.http.door import Door
from dragoman.http.operations import Operation

MEDIA_TYPE = "application/json"
OpenApi = dict[str, Any]


def document_operation(operations: Sequence[Operation]) -> Operation:
    """The operation that tells of these, and of itself."""
    shown: list[bytes] = []

    async def handler(door: Door, request: Request) -> Response:
        if not shown:
            shown.append(msgspec.json.encode(document([*operations, itself])))
        return Response(shown[0], media_type=MEDIA_TYPE)

    itself = Operation("GET", "/openapi.json", "openapi", "This document.", handler, {200: OpenApi}, "about")
    return itself


def document(operations: Sequence[Operation]) -> OpenApi:
    return {}
