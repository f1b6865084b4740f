"""Whether the broker lives, and whether it can be given work: what supervisors and load balancers ask."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from dragoman.http.context import AppContext
from dragoman.http.problems import problem
from dragoman.http.route import TEXT, Route

RETRY_AFTER = "1"  # seconds; most of what makes a broker unready passes


async def livez(context: AppContext, request: Request) -> Response:
    """That this is answered at all is the answer: the loop turns."""
    return PlainTextResponse("alive\n", headers={"Cache-Control": "no-store"})


async def readyz(context: AppContext, request: Request) -> Response:
    view = context.health()
    if view.ready:
        return PlainTextResponse("ready\n", headers={"Cache-Control": "no-store"})
    detail = "; ".join(view.problems) or "it does not say why"
    headers = [("Retry-After", RETRY_AFTER), ("Cache-Control", "no-store")]
    return problem(503, "not-ready", "The broker takes no new jobs now", detail, headers)


async def health(context: AppContext, request: Request) -> Response:
    """The operation `health`. It is answered whatever else the broker is asked, and never cached."""
    body = msgspec.json.encode(context.health())
    return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})


PATHS = ("/livez", "/readyz", "/v1/health")  # answered even when there are too many connections (R127)

ROUTES = [
    Route(
        method="GET",
        path="/livez",
        name="livez",
        summary="Whether the broker's loop turns: answered at all means yes.",
        handler=livez,
        answers={200: TEXT},
        tag="health",
    ),
    Route(
        method="GET",
        path="/readyz",
        name="readyz",
        summary="Whether the broker takes new jobs now.",
        handler=readyz,
        answers={200: TEXT},
        tag="health",
        problems=(503,),
    ),
]
