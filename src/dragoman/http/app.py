"""The ASGI application of the HTTP listener: finds the route of each request, and returns errors as problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from dragoman.http import calls, events, health, live, login_routes, metrics, worker_routes
from dragoman.http.admission import ADMITTED
from dragoman.http.context import AppContext
from dragoman.http.openapi import document_route
from dragoman.http.operation_call import ClientDisconnected
from dragoman.http.operation_routes import operation_routes
from dragoman.http.problems import HttpError, problem
from dragoman.http.route import Route
from dragoman.http.routes import Methods, Routes
from dragoman.http.security_headers import NO_STORE
from dragoman.operations.table import OPERATIONS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


def all_routes(*, has_login: bool = False) -> list[Route]:
    """Return the routes of a listener. `has_login`: it has tokens, so that browsers log in."""
    others = [each for module in (worker_routes, events, live, health, metrics) for each in module.ROUTES]
    pages = [*login_routes.START_PAGE, *(login_routes.LOGIN_ROUTES if has_login else [])]
    routes = [*calls.ROUTES, *operation_routes(OPERATIONS.values()), *others, *pages]
    return [*routes, document_route(routes, has_login=has_login)]


def make_app(context: AppContext, served: Iterable[Route] | None = None) -> ASGIApp:
    """Return the application. Unexpected exceptions reach the server, which responds with 500 and logs them."""
    routes = Routes(served if served is not None else all_routes(has_login=context.access.sessions is not None))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "only HTTP is supported"
        try:
            response = await _respond(context, routes, scope, receive, send)
        except HttpError as error:
            response = error.response
        except ClientDisconnected:
            response = Response(status_code=204)  # it is not sent any more
        _forbid_caching(response)
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
        if route is None or route.too_large is None:
            return
        try:
            if _admit(context, scope):
                route.too_large(context, Request(scope))
        except HttpError:
            pass  # the response says that the body is too large

    return too_large


async def _respond(context: AppContext, routes: Routes, scope: Scope, receive: Receive, send: Send) -> Response:
    methods, scope["path_params"] = routes.find(scope["raw_path"]) or ({}, {})
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    route = methods.get(method)
    if not _admit(context, scope) and (route is None or not route.is_public):
        return context.access.challenge(scope)
    if route is None:
        return _not_allowed(methods) if methods else _not_found()
    return await route.handler(context, Request(scope, receive, send))


def _admit(context: AppContext, scope: Scope) -> bool:
    """Find the principal of a request. Returns False if it is not known."""
    admission = context.access.admit(scope)
    scope.setdefault("extensions", {})[ADMITTED] = admission
    return admission is not None


def _forbid_caching(response: Response) -> None:
    """Add `Cache-Control: no-store` to all responses but assets, which have their own."""
    headers = getattr(response, "raw_headers", None)  # an event stream has none
    if headers is None:
        return
    for name, _ in headers:
        if name == b"cache-control":
            return
    headers.append(NO_STORE)


def _not_found() -> Response:
    return problem(404, "not-found", "Not found", "No route has this path; /openapi.json lists all routes.")


def _not_allowed(methods: Methods) -> Response:
    allowed = sorted({*methods, *(["HEAD"] if "GET" in methods else [])})
    detail = f"This path allows {', '.join(allowed)}."
    return problem(405, "method-not-allowed", "Method not allowed", detail, [("allow", ", ".join(allowed))])
