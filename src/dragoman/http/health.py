"""Health checks for supervisors and load balancers."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from dragoman.http.admission import admission_of
from dragoman.http.context import AppContext
from dragoman.http.problems import problem
from dragoman.http.route import TEXT, Route
from dragoman.operations.visible_views import visible_health

RETRY_AFTER = "1"  # seconds; most causes are temporary


async def livez(context: AppContext, request: Request) -> Response:
    """Respond at once: a response proves that the event loop runs."""
    return PlainTextResponse("alive\n", headers={"Cache-Control": "no-store"})


async def readyz(context: AppContext, request: Request) -> Response:
    view = context.health()
    is_principal = admission_of(request.scope) is not None  # the reasons are for principals only
    if view.ready:
        degraded = [*view.degraded, *([view.replicas] if view.replicas else [])]
        lines = ["ready", *[f"degraded: {each}" for each in degraded if is_principal]]
        return PlainTextResponse("\n".join(lines) + "\n", headers={"Cache-Control": "no-store"})
    headers = [("Retry-After", RETRY_AFTER), ("Cache-Control", "no-store")]
    if not is_principal:
        return PlainTextResponse("unready\n", 503, dict(headers))
    detail = "; ".join(view.problems) or "no reason is known"
    return problem(503, "not-ready", "The broker accepts no new jobs now", detail, headers)


async def health(context: AppContext, request: Request) -> Response:
    """Run the operation `health`, in any state of the broker, without caching."""
    view = visible_health(context.health(), context.owner(request.scope).principal)
    body = msgspec.json.encode(view)
    return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})


PUBLIC_PATHS = ("/livez", "/readyz")  # served to every user (T22)
PATHS = (*PUBLIC_PATHS, "/v1/health")  # served even when there are too many connections (R127)

ROUTES = [
    Route(
        method="GET",
        path="/livez",
        name="livez",
        summary="Check that the broker's event loop runs. Any response means yes.",
        handler=livez,
        answers={200: TEXT},
        tag="health",
        is_public=True,
    ),
    Route(
        method="GET",
        path="/readyz",
        name="readyz",
        summary="Check that the broker accepts new jobs.",
        handler=readyz,
        answers={200: TEXT},
        tag="health",
        problems=(503,),
        is_public=True,
    ),
]
