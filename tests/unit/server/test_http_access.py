"""Principals of HTTP connections: every kind of listener with every kind of client (R158)."""

from __future__ import annotations

from typing import Any

import pytest

from case_tables import check_every_row
from dragoman.access.identities import Identity, IdentityKind
from dragoman.access.principal_file import PrincipalEntry
from dragoman.access.table import AccessTable
from dragoman.access.tokens import token_hash
from dragoman.core.counters import Counters
from dragoman.core.rights import NO_LIMITS, NO_RIGHTS, Principals
from dragoman.http.admission import Admission
from dragoman.http.framing import RequestError
from dragoman.http.request_access import RequestAccess
from dragoman.server.authentication import Authentication, Rejected
from dragoman.server.http_access import HttpAccess
from dragoman.server.local_peers import LoopbackRule
from dragoman.server.reports import Reports

OWNER, ANYONE, _ = LoopbackRule
STRANGER = "uid 7 may not connect"
KNOWN, UNKNOWN = b"known", b"unknown"
TOKEN = "dgm_x"

IDENTITIES = {
    "web": Identity(IdentityKind.TOKEN, token_hash(TOKEN)),
    "gpu": Identity(IdentityKind.TLS_NAME, "gpu.example"),
    "alice": Identity(IdentityKind.UID, 12_345),
}


class FakeAuthentication(Authentication):
    """Certificates are names."""

    def by_certificate(self, certificate: bytes) -> Any:
        assert certificate in (KNOWN, UNKNOWN)
        if self.table is None:
            return self.anyone
        if certificate == UNKNOWN:
            return Rejected("unknown certificate", "run `dragoman access allow`")
        found = self._admitted(self.table.entries.get("gpu"), IdentityKind.TLS_NAME, "gpu.example")  # type: ignore[arg-type]
        return found or Rejected("unknown certificate", "")


class FakeLocalPeers:
    """Sockets are user ids."""

    def __init__(self, authentication: Authentication) -> None:
        self._authentication = authentication
        self.judged: list[object] = []

    def judge(self, connected: object, rule: LoopbackRule) -> Any:
        self.judged.append(connected)
        if connected == 0:
            return self._authentication.local
        found = self._authentication.by_user(connected) if isinstance(connected, int) else None
        return found or (self._authentication.anyone if rule is ANYONE else STRANGER)


class Setup:
    def __init__(self, *, has_table: bool = True, **facts: Any) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []
        self.authentication = FakeAuthentication(Principals())
        self.apply(*(IDENTITIES if has_table else ()), has_table=has_table)
        self.local_peers = FakeLocalPeers(self.authentication)
        reports = Reports(Counters(), lambda: 0.0, lambda level, event, **fields: self.lines.append((event, fields)))
        settings = {"rule": OWNER, "has_tokens": False, "verifies_certificates": False, "is_local": True, **facts}
        self.access = HttpAccess(self.authentication, self.local_peers, reports=reports, **settings)  # type: ignore[arg-type]

    def apply(self, *names: str, has_table: bool = True) -> None:
        entries = [PrincipalEntry(each, "x", NO_RIGHTS, NO_LIMITS, (IDENTITIES[each],)) for each in names]
        self.authentication.apply(AccessTable(entries) if has_table else None)


def told(found: Admission | RequestError | None) -> str | int | None:
    """Return the name of the principal, the status of the error, or None."""
    if isinstance(found, RequestError):
        return found.status
    return found.principal.name if found is not None else None


LISTENERS: dict[str, dict[str, Any]] = {
    "loopback": {},
    "loopback without table": {"has_table": False},
    "loopback=anyone": {"rule": ANYONE},
    "insecure": {"rule": ANYONE, "is_local": False},
    "token": {"rule": ANYONE, "has_tokens": True},
    "token off loopback": {"rule": ANYONE, "has_tokens": True, "is_local": False},
    "token and owner": {"has_tokens": True},
    "client_ca": {"rule": ANYONE, "is_local": False, "verifies_certificates": True},
    "client_ca without table": {
        "rule": ANYONE,
        "is_local": False,
        "verifies_certificates": True,
        "has_table": False,
    },
    "client_ca on loopback": {"verifies_certificates": True},
    "client_ca and token": {
        "rule": ANYONE,
        "is_local": False,
        "verifies_certificates": True,
        "has_tokens": True,
    },
}
NO, SHOWN, FOREIGN = None, KNOWN, UNKNOWN

# listener, user id, certificate -> principal, status of the error, or None: requests prove it
ROWS: list[tuple[str, int, bytes | None, str | int | None]] = [
    ("loopback", 0, NO, "local"),
    ("loopback", 12_345, NO, "alice"),
    ("loopback", 7, NO, 403),
    ("loopback without table", 0, NO, "local"),
    ("loopback without table", 7, NO, 403),
    ("loopback=anyone", 0, NO, "local"),
    ("loopback=anyone", 12_345, NO, "alice"),
    ("loopback=anyone", 7, NO, "anyone"),
    ("insecure", 0, NO, "anyone"),
    ("token", 0, NO, None),
    ("token", 7, NO, None),
    ("token off loopback", 7, NO, None),
    ("token and owner", 0, NO, None),
    ("token and owner", 7, NO, 403),
    ("client_ca", 7, SHOWN, "gpu"),
    ("client_ca", 7, FOREIGN, 401),
    ("client_ca", 7, NO, 401),
    ("client_ca without table", 7, SHOWN, "anyone"),
    ("client_ca on loopback", 0, SHOWN, "gpu"),
    ("client_ca on loopback", 0, NO, 401),
    ("client_ca on loopback", 7, SHOWN, 403),
    ("client_ca and token", 7, SHOWN, "gpu"),
    ("client_ca and token", 7, FOREIGN, None),
    ("client_ca and token", 7, NO, None),
]


def test_every_listener_with_every_client() -> None:
    def check(listener: str, uid: int, certificate: bytes | None, expected: str | int | None) -> None:
        setup = Setup(**LISTENERS[listener])
        assert told(setup.access.admit(uid, certificate)) == expected  # type: ignore[arg-type]

    check_every_row(check, ROWS)
    assert {listener for listener, *_ in ROWS} == set(LISTENERS)


def test_user_is_not_asked_for_where_tokens_decide() -> None:
    for name in ("token", "token off loopback", "client_ca and token", "insecure"):
        setup = Setup(**LISTENERS[name])
        setup.access.admit(7, None)  # type: ignore[arg-type]
        assert setup.local_peers.judged == [], name


def test_unknown_certificate_is_logged_with_the_command() -> None:
    setup = Setup(**LISTENERS["client_ca"])
    setup.access.admit(7, UNKNOWN)  # type: ignore[arg-type]
    [(event, fields)] = setup.lines
    assert (event, fields["detail"]) == ("certificate rejected", "run `dragoman access allow`")


def test_admission_ends_with_its_identity() -> None:
    setup = Setup(**LISTENERS["client_ca and token"])
    by_token, by_certificate = setup.access.by_token(TOKEN), setup.access.admit(7, KNOWN)  # type: ignore[arg-type]
    assert isinstance(by_token, Admission)
    assert isinstance(by_certificate, Admission)
    assert by_token.proof == f"token {token_hash(TOKEN).hex()[:8]}"
    assert setup.access.by_token("dgm_y") is None
    setup.apply("web")
    assert (by_token.is_current(), by_certificate.is_current()) == (True, False)
    setup.apply()
    assert not by_token.is_current()


def test_refused_logins_are_limited_in_the_log() -> None:
    setup = Setup(**LISTENERS["token"])
    access = setup.access.request_access(lambda: 0.0, False, lambda *_: None)
    for _ in range(100):
        access.log("login refused", "192.0.2.1:1", None)
    assert len(setup.lines) == 20
    found = access.by_token(TOKEN) if access.by_token is not None else None
    access.log("login", "192.0.2.1:1", found)
    assert setup.lines[-1] == (
        "login",
        {"principal": "web", "proof": f"token {token_hash(TOKEN).hex()[:8]}", "address": "192.0.2.1:1"},
    )


@pytest.mark.parametrize(("name", "expected"), [("loopback", True), ("loopback=anyone", False), ("token", False)])
def test_forwarded_requests_are_rejected_where_users_are_checked(name: str, expected: bool) -> None:
    check = Setup(**LISTENERS[name]).access.connection_check(RequestAccess())
    assert (check.rejects_forwarded, check.public_paths) == (expected, {b"/livez", b"/readyz"})
