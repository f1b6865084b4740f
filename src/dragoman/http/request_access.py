"""Access of requests: finds the principal of each request, and rejects requests without one.

On a listener with `auth=token` a request shows a token or the cookie of a login session, or its connection has shown a
certificate. On all others the connection decides alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from dragoman.http.admission import CONNECTED, Admission, origin_of
from dragoman.http.hosts import is_own_origin
from dragoman.http.login_sessions import LoginSessions
from dragoman.http.pages import login_page
from dragoman.http.problems import HttpError, problem

SECURE_COOKIE: Final = "__Host-dragoman"  # browsers accept it only over TLS, and from this host itself
PLAIN_COOKIE: Final = "dragoman"  # on loopback without TLS
SAFE_METHODS: Final = ("GET", "HEAD")
CHALLENGE: Final = ("www-authenticate", "Bearer")

# The same for unknown, expired and missing credentials.
UNAUTHENTICATED: Final = "Send a valid token of a principal: `Authorization: Bearer dgm_…`, or log in at /login."

FindToken = Callable[[str], Admission | None]
Report = Callable[[str, str, str], None]  # reason, address, detail
LogEvent = Callable[[str, str, Admission | None], None]  # event, address


def _no_report(reason: str, address: str, detail: str) -> None: ...


def _no_log(event: str, address: str, admission: Admission | None) -> None: ...


@dataclass(slots=True)
class RequestAccess:
    """Access to one listener. Without `by_token` it has no tokens and no login."""

    by_token: FindToken | None = None
    sessions: LoginSessions | None = None
    is_tls: bool = False
    report: Report = _no_report  # called for each rejected request
    log: LogEvent = _no_log  # called for each login, refused login and logout
    end_revoked: Callable[[], int] = lambda: 0  # ends requests whose principal has lost its access

    @property
    def has_tokens(self) -> bool:
        """Tell if `Authorization: Bearer` has the token of a principal."""
        return self.by_token is not None

    def admit(self, scope: Mapping[str, Any]) -> Admission | None:
        """Return the admission of a request, or None. Raises HttpError for a cookie that another page may have sent."""
        connected: Admission | None = scope.get("extensions", {}).get(CONNECTED)
        if self.by_token is None:
            return connected
        fields = _fields(scope)
        token = _bearer(fields.get(b"authorization", b""))
        found = self.by_token(token or "")  # the same work without a token
        if token is not None:
            return found
        return self._by_cookie(scope, fields) or connected

    def _by_cookie(self, scope: Mapping[str, Any], fields: Mapping[bytes, bytes]) -> Admission | None:
        id = self.session_id(fields.get(b"cookie", b""))
        if id is None or self.sessions is None:
            return None
        if scope["method"] not in SAFE_METHODS:
            origin = fields.get(b"origin")
            if origin is None or not is_own_origin(origin, fields.get(b"host", b""), is_tls=self.is_tls):
                self.report("no-origin", address_of(scope), "")
                detail = (
                    "A request with the login cookie must have an Origin header with the address of this server; "
                    "programs send a token instead: `Authorization: Bearer dgm_…`."
                )
                raise HttpError(problem(403, "no-origin", "No origin", detail))
        return self.sessions.find(id, origin_of(scope))

    def session_id(self, cookies: bytes) -> str | None:
        """Return the id of the login session in a Cookie header."""
        values: dict[str, str] = {}
        for each in cookies.decode("latin-1").split(";"):
            name, _, value = each.partition("=")
            values.setdefault(name.strip(), value.strip())
        id = values.get(SECURE_COOKIE)
        return id if id is not None or self.is_tls else values.get(PLAIN_COOKIE)

    def challenge(self, scope: Mapping[str, Any]) -> Response:
        """Return the response to a request without a known principal."""
        self.report("unauthenticated", address_of(scope), "")
        # Not a redirect: a program that follows it would take the login page for a success.
        if self.sessions is not None and wants_page(scope):
            return login_page(401, headers=[CHALLENGE])
        return unauthenticated()


def unauthenticated() -> Response:
    return problem(401, "unauthenticated", "Unauthenticated", UNAUTHENTICATED, [CHALLENGE])


def wants_page(scope: Mapping[str, Any]) -> bool:
    """Tell if a browser requests a page."""
    return scope["method"] in SAFE_METHODS and b"text/html" in _fields(scope).get(b"accept", b"").lower()


def address_of(scope: Mapping[str, Any]) -> str:
    """Return the address of the client, for the log."""
    client = scope.get("client")
    if client is None:
        return "unix"
    host, port = client
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _fields(scope: Mapping[str, Any]) -> dict[bytes, bytes]:
    return dict(scope["headers"])


def _bearer(value: bytes) -> str | None:
    """Return the token of an Authorization header, or None if it has another scheme."""
    scheme, _, token = value.decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
