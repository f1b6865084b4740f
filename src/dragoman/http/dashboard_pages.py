"""The dashboard: its page, its files, and the listener that only shows it.

The page is one HTML file for all of its paths; its scripts read the path. The files have no secrets and are read once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Final

from msgspec import json
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.rights import Principal, Right
from dragoman.http.admission import admission_of
from dragoman.http.context import AppContext
from dragoman.http.hosts import PAGE_PATHS
from dragoman.http.login_routes import has_session, start_page
from dragoman.http.options import DashboardMode
from dragoman.http.pages import HTML
from dragoman.http.problems import problem
from dragoman.http.route import Route
from dragoman.operations.table import ENQUEUE, OPERATIONS

FOLDER: Final = Path(__file__).with_name("ui")
INDEX: Final = "index.html"
FACTS: Final = 'data-principal=""'  # the attribute of the page that is replaced by the facts about a principal
TYPES: Final = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
READ_ONLY: Final = (
    "This listener has dashboard=read: it does not change jobs, services, workers or schedules. "
    "Use another listener, or a dragoman command on another address."
)


@dataclass(frozen=True, slots=True)
class Asset:
    body: bytes
    type: str
    tag: str  # the ETag


@cache
def assets() -> dict[str, Asset]:
    """Return the files of the page by path below /ui/."""
    found = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.suffix in TYPES:
            body = path.read_bytes()
            tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
            found[path.relative_to(FOLDER).as_posix()] = Asset(body, TYPES[path.suffix], tag)
    return found


@cache
def index() -> str:
    return FOLDER.joinpath(INDEX).read_text(encoding="utf-8")


async def page(context: AppContext, request: Request) -> Response:
    admission = admission_of(request.scope)
    assert admission is not None, "the page is for known principals"
    facts = page_facts(admission.principal, context.dashboard_mode, has_login=has_session(context, request))
    if not context.shows_payloads:
        facts += ' data-payloads="none"'
    return Response(index().replace(FACTS, facts, 1), headers={"content-type": HTML})


def page_facts(principal: Principal, mode: DashboardMode, *, has_login: bool) -> str:
    """Return the attributes of the page that tell its scripts the principal, its rights and the mode."""
    facts = {
        "principal": principal.name,
        "sees": "all" if principal.rights.sees_all else "some",
        "acts": "none" if mode is DashboardMode.READ else "all" if principal.rights.administers_all else "some",
        "administers": json.encode(principal.rights.patterns(Right.ADMINISTER)).decode(),
        "login": "session" if has_login else "none",
    }
    return " ".join(f'data-{name}="{escape(value)}"' for name, value in facts.items())


async def asset(context: AppContext, request: Request) -> Response:
    return _asset(request, request.path_params["name"])


async def page_asset(context: AppContext, request: Request) -> Response:
    return _asset(request, f"pages/{request.path_params['name']}")


def _asset(request: Request, name: str) -> Response:
    found = assets().get(name)
    if found is None:
        return problem(404, "not-found", "Not found", "The dashboard has no file of this name.")
    headers = {"etag": found.tag, "cache-control": "no-cache"}
    tags = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    if found.tag in tags:
        return Response(status_code=304, headers=headers)
    return Response(found.body, headers={**headers, "content-type": found.type})


def dashboard_routes() -> list[Route]:
    """Return the routes of the page at all of its paths, of its files, and of the start page beside it."""
    pages = [_route(path, page, "The dashboard") for path in PAGE_PATHS]
    files = [
        _route("/ui/{name}", asset, "File of the dashboard"),
        _route("/ui/pages/{name}", page_asset, "File of the dashboard"),
    ]
    return [*pages, *files, _route("/account", start_page, "Rights of the principal, and links")]


def _route(path: str, handler: Any, summary: str) -> Route:
    return Route("GET", path, handler.__name__.replace("_", "-"), summary, handler, {}, "pages", is_page=True)


def without_acts(routes: Iterable[Route]) -> list[Route]:
    """Return the routes with all operations that change something, but `enqueue`, replaced by a refusal."""
    acts = {(row.method, row.path) for row in OPERATIONS.values() if row.method != "GET" and row is not ENQUEUE}
    return [replace(each, handler=_refuse_act) if (each.method, each.path) in acts else each for each in routes]


async def _refuse_act(context: AppContext, request: Request) -> Response:
    return problem(403, "read-only", "Read-only", READ_ONLY)
