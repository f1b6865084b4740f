"""The ASGI application of the HTTP listener: finds the route of each request, and returns errors as problems."""

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
    """Return the application. Unexpected exceptions reach the server, which responds with 500 and logs them."""
    routes = Routes(served if served is not None else all_routes())

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "only HTTP is supported"
        try:
            response = await _respond(context, routes, scope, receive, send)
        except HttpError as error:
            response = error.response
        except ClientDisconnected:
            response = Response(status_code=204)  # it is not sent any more
        await response(scope, receive, send)

    return app


def make_too_large(context: AppContext) -> Callable[[dict[str, Any]], None]:
    """Return a function for requests that the server rejects because of a large body: some routes must act on them."""
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


async def _respond(context: AppContext, routes: Routes, scope: Scope, receive: Receive, send: Send) -> Response:
    found = routes.find(scope["raw_path"])
    if found is None:
        return problem(404, "not-found", "Not found", "No route has this path; /openapi.json lists all routes.")
    methods, scope["path_params"] = found
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    route = methods.get(method)
    if route is None:
        return _not_allowed(methods)
    return await route.handler(context, Request(scope, receive, send))


def _not_allowed(methods: Methods) -> Response:
    allowed = sorted({*methods, *(["HEAD"] if "GET" in methods else [])})
    detail = f"This path allows {', '.join(allowed)}."
    return problem(405, "method-not-allowed", "Method not allowed", detail, [("allow", ", ".join(allowed))])
