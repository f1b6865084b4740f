"""The HTTP door's application: each request goes to its operation, and whatever goes wrong comes back as a problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from dragoman.http import calls, events, health, metrics, operation_routes, worker_routes
from dragoman.http.context import AppContext
from dragoman.http.openapi import document_operation
from dragoman.http.operation_call import ClientDisconnected
from dragoman.http.operations import HttpOperation
from dragoman.http.problems import HttpError, problem
from dragoman.http.routes import Methods, Routes

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


def all_operations() -> list[HttpOperation]:
    modules = (calls, operation_routes, worker_routes, events, health, metrics)
    operations = [operation for module in modules for operation in module.OPERATIONS]
    return [*operations, document_operation(operations)]


def make_app(door: AppContext, operations: Iterable[HttpOperation] | None = None) -> ASGIApp:
    """What a server may serve. An exception that is not meant goes to the server, which says 500 and logs it."""
    routes = Routes(operations if operations is not None else all_operations())

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "nothing but HTTP is spoken here"
        try:
            response = await _answer(door, routes, scope, receive, send)
        except HttpError as refused:
            response = refused.response
        except ClientDisconnected:
            response = Response(status_code=204)  # nobody reads it
        await response(scope, receive, send)

    return app


def make_too_large(door: AppContext) -> Callable[[dict[str, Any]], None]:
    """What a server tells of requests whose bodies are too large: to some operations that means something."""
    routes = Routes(each for each in all_operations() if each.too_large is not None)

    def too_large(scope: dict[str, Any]) -> None:
        found = routes.find(scope["raw_path"])
        if found is None:
            return
        methods, scope["path_params"] = found
        operation = methods.get(scope["method"])
        if operation is not None and operation.too_large is not None:
            operation.too_large(door, Request(scope))

    return too_large


async def _answer(door: AppContext, routes: Routes, scope: Scope, receive: Receive, send: Send) -> Response:
    found = routes.find(scope["raw_path"])
    if found is None:
        return problem(
            404, "not-found", "Not found", "There is nothing at this path; /openapi.json lists what there is."
        )
    methods, scope["path_params"] = found
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    operation = methods.get(method)
    if operation is None:
        return _not_allowed(methods)
    return await operation.handler(door, Request(scope, receive, send))


def _not_allowed(methods: Methods) -> Response:
    allowed = sorted({*methods, *(["HEAD"] if "GET" in methods else [])})
    detail = f"This path knows {', '.join(allowed)}."
    return problem(405, "method-not-allowed", "Method not allowed", detail, [("allow", ", ".join(allowed))])
