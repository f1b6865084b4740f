"""The HTTP door's application: each request goes to its route, and whatever goes wrong comes back as a problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from dragoman.http import calls, events, health, metrics, worker_routes
from dragoman.http.context import AppContext
from dragoman.http.openapi import document_route
from dragoman.http.operation_call import ClientDisconnected
from dragoman.http.operation_routes import operation_routes
from dragoman.http.problems import HttpError, problem
from dragoman.http.route import Route
from dragoman.http.routes import Methods, Routes
from dragoman.operations.table import OPERATIONS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


def all_routes() -> list[Route]:
    others = [each for module in (worker_routes, events, health, metrics) for each in module.ROUTES]
    routes = [*calls.ROUTES, *operation_routes(OPERATIONS.values()), *others]
    return [*routes, document_route(routes)]


def make_app(context: AppContext, served: Iterable[Route] | None = None) -> ASGIApp:
    """What a server may serve. An exception that is not meant goes to the server, which says 500 and logs it."""
    routes = Routes(served if served is not None else all_routes())

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "nothing but HTTP is spoken here"
        try:
            response = await _answer(context, routes, scope, receive, send)
        except HttpError as refused:
            response = refused.response
        except ClientDisconnected:
            response = Response(status_code=204)  # nobody reads it
        await response(scope, receive, send)

    return app


def make_too_large(context: AppContext) -> Callable[[dict[str, Any]], None]:
    """What a server tells of requests whose bodies are too large: to some routes that means something."""
    routes = Routes(each for each in all_routes() if each.too_large is not None)

    def too_large(scope: dict[str, Any]) -> None:
        found = routes.find(scope["raw_path"])
        if found is None:
            return
        methods, scope["path_params"] = found
        route = methods.get(scope["method"])
        if route is not None and route.too_large is not None:
            route.too_large(context, Request(scope))

    return too_large


async def _answer(context: AppContext, routes: Routes, scope: Scope, receive: Receive, send: Send) -> Response:
    found = routes.find(scope["raw_path"])
    if found is None:
        return problem(
            404, "not-found", "Not found", "There is nothing at this path; /openapi.json lists what there is."
        )
    methods, scope["path_params"] = found
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    route = methods.get(method)
    if route is None:
        return _not_allowed(methods)
    return await route.handler(context, Request(scope, receive, send))


def _not_allowed(methods: Methods) -> Response:
    allowed = sorted({*methods, *(["HEAD"] if "GET" in methods else [])})
    detail = f"This path knows {', '.join(allowed)}."
    return problem(405, "method-not-allowed", "Method not allowed", detail, [("allow", ", ".join(allowed))])
