"""Login and logout of browsers, and the start page."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dragoman.http import pages
from dragoman.http.admission import ADMITTED, admission_of, origin_of
from dragoman.http.context import AppContext
from dragoman.http.problems import HttpError, problem
from dragoman.http.request_access import (
    CHALLENGE,
    PLAIN_COOKIE,
    SECURE_COOKIE,
    RequestAccess,
    address_of,
    unauthenticated,
)
from dragoman.http.request_parsing import body_of, is_json
from dragoman.http.route import Route
from dragoman.operations.validation import decode

FORM = "application/x-www-form-urlencoded"
MOST_BYTES = 4096  # of the body of a login
MOST_FIELDS = 8


class LoginRequest(msgspec.Struct):
    """Token of a principal."""

    token: str


_logins = msgspec.json.Decoder(LoginRequest)


async def login_form(context: AppContext, request: Request) -> Response:
    return pages.login_page()


async def login(context: AppContext, request: Request) -> Response:
    """Open a session for the token in the body. A form gets a page, JSON a problem or nothing."""
    access = context.access
    assert access.by_token is not None, "a listener without tokens has no login"
    assert access.sessions is not None, "a listener with tokens has sessions"
    is_form = not is_json(request)
    admission = access.by_token(await _token(context, request))
    address = address_of(request.scope)
    if admission is None:
        access.log("login refused", address, None)
        if is_form:
            return pages.login_page(401, pages.LOGIN_REFUSED, [CHALLENGE])
        return unauthenticated()
    _close_session(access, request)
    is_secure = access.is_tls or request.headers.get("origin", "").lower().startswith("https://")
    cookie = _cookie(
        is_secure, access.sessions.open(admission, origin_of(request.scope)), int(access.sessions.lifetime)
    )
    access.log("login", address, admission)
    return _done("/", [cookie]) if is_form else Response(status_code=204, headers={"set-cookie": cookie})


async def _token(context: AppContext, request: Request) -> str:
    body = bytes(await body_of(context, request.receive, MOST_BYTES))
    if is_json(request):
        try:
            return decode(_logins, body).token.strip()
        except (msgspec.DecodeError, UnicodeDecodeError):
            _reject(422, "invalid", "Not valid", 'in the body: send {"token": "dgm_…"}')
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        _reject(415, "wrong-content-type", "Wrong content type", f"Send {FORM} or application/json.")
    try:
        fields = parse_qs(body.decode(), max_num_fields=MOST_FIELDS)
    except ValueError:
        fields = {}
    return fields.get("token", [""])[0].strip()


async def logout(context: AppContext, request: Request) -> Response:
    access, admission = context.access, admission_of(request.scope)
    if _close_session(access, request):
        access.log("logout", address_of(request.scope), admission)
    return _done("/login", [_cookie(True, "", 0), *([] if access.is_tls else [_cookie(False, "", 0)])])


async def start_page(context: AppContext, request: Request) -> Response:
    admission = admission_of(request.scope)
    assert admission is not None, "the page is for known principals"
    return pages.start_page(admission.principal, has_login=has_session(context, request))


def has_session(context: AppContext, request: Request) -> bool:
    """Tell if the request comes from a browser that has logged in."""
    access = context.access
    return access.sessions is not None and _session_id(access, request) is not None


async def style(context: AppContext, request: Request) -> Response:
    return pages.style()


def _session_id(access: RequestAccess, request: Request) -> str | None:
    return access.session_id(request.headers.get("cookie", "").encode("latin-1"))


def _close_session(access: RequestAccess, request: Request) -> bool:
    """Close the session of the cookie, and end what was requested with it, except this request."""
    id = _session_id(access, request)
    if id is None or access.sessions is None or not access.sessions.close(id, origin_of(request.scope)):
        return False
    request.scope["extensions"][ADMITTED] = None
    access.end_revoked()
    return True


def _cookie(is_secure: bool, value: str, age: int) -> str:
    name, secure = (SECURE_COOKIE, "; Secure") if is_secure else (PLAIN_COOKIE, "")
    return f"{name}={value}; Max-Age={age}; Path=/; HttpOnly{secure}; SameSite=Strict"


def _done(path: str, cookies: list[str]) -> Response:
    """Return a redirect: the browser requests a page."""
    response = Response(status_code=303, headers={"location": path})
    for each in cookies:
        response.headers.append("set-cookie", each)
    return response


def _reject(status: int, kind: str, title: str, detail: str) -> Any:
    raise HttpError(problem(status, kind, title, detail))


def _route(method: str, path: str, handler: Any, summary: str, *, is_public: bool = False) -> Route:
    name = handler.__name__.replace("_", "-")
    return Route(method, path, name, summary, handler, {}, "pages", is_public=is_public, is_page=True)


START_PAGE = _route("GET", "/", start_page, "Rights of the principal, and links")
STYLE = _route("GET", pages.STYLE_PATH, style, "Style sheet of the pages", is_public=True)
LOGIN_ROUTES = [
    _route("GET", "/login", login_form, "Login form", is_public=True),
    _route("POST", "/login", login, "Log in with a token", is_public=True),
    _route("POST", "/logout", logout, "Log out", is_public=True),
]
