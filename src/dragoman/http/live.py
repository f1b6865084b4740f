"""The stream of snapshots for dashboards."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from dragoman.dashboard.pages import page_of
from dragoman.http.context import AppContext
from dragoman.http.problems import HttpError, problem
from dragoman.http.request_parsing import in_query
from dragoman.http.route import EVENTS, Route
from dragoman.http.sse import EventStream
from dragoman.operations.schemas import OperationRequest


class LiveQuery(OperationRequest):
    page: Annotated[
        str,
        Meta(
            description="`overview`, `workers`, `service/NAME`, `worker/ID` or `job/ID`.", examples=["service/resize"]
        ),
    ] = "overview"


async def live(context: AppContext, request: Request) -> Any:
    """Open a stream of snapshots. A reader that is too slow skips snapshots: each is complete."""
    try:
        page = page_of(in_query(request, LiveQuery).page)
    except ValueError as error:
        raise HttpError(problem(422, "invalid", "Not valid", f"page, in the query: {error}.")) from None
    dashboard = context.dashboard
    if dashboard is None:
        detail = "This broker keeps no history; ask one that was started with dragoman serve."
        raise HttpError(problem(409, "conflict", "Conflict", detail))
    if request.method == "HEAD":
        return Response(media_type=EVENTS)
    stream = EventStream(context.session.streams, lambda: dashboard.leave(stream))
    dashboard.watch(stream, context.owner(request.scope).principal, page)
    return stream


ROUTES = [
    Route(
        "GET",
        "/v1/live",
        "live",
        "Stream snapshots of the broker, in a cluster of all brokers, one each second. The data of each event "
        "`snapshot` is a SnapshotView, and is complete: a reader that is too slow skips some.",
        live,
        {200: EVENTS},
        "live",
        query=LiveQuery,
        problems=(409, 422, 429, 503),
    ),
]
