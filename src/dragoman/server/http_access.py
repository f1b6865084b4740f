"""Access of HTTP: the principals of connections, by user or certificate, and those of tokens."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from dragoman.http import health
from dragoman.http.admission import Admission
from dragoman.http.framing import RequestError
from dragoman.http.login_sessions import LoginSessions
from dragoman.http.problems import HttpError
from dragoman.http.request_access import RequestAccess
from dragoman.http.server_state import ConnectionCheck, Report
from dragoman.sdk.address import is_loopback, verifies_clients
from dragoman.server.authentication import Admitted, Authentication, Rejected
from dragoman.server.clock import random_bytes
from dragoman.server.local_peers import LocalPeers, LoopbackRule
from dragoman.server.reports import Reports
from dragoman.server.wiring import ListenRequest
from dragoman.streams.sockets import is_local

ANOTHER_USER: Final = "another-user"
UNAUTHENTICATED: Final = RequestError(
    401, "unauthenticated", "Unauthenticated", "Connect with the certificate of a principal."
)


@dataclass(frozen=True, slots=True)
class HttpAccess:
    """Finds principals for one HTTP listener."""

    authentication: Authentication
    local_peers: LocalPeers
    rule: LoopbackRule  # local users that may connect
    reports: Reports
    has_tokens: bool  # requests prove their principal
    verifies_certificates: bool
    is_local: bool  # the listener is on loopback or on a Unix socket

    def admit(self, connected: socket.socket, certificate: bytes | None) -> Admission | RequestError | None:
        """Return the principal of a connection, None if its requests prove one, or the error of all its requests.
        Raises PeerGone."""
        user: Admitted | str = self.authentication.anyone
        if self.is_local and (self.rule is not LoopbackRule.ANYONE or not self.has_tokens):
            user = self.local_peers.judge(connected, self.rule)
        if isinstance(user, str):
            return RequestError(403, ANOTHER_USER, "Another user", user)
        if self.verifies_certificates:
            found = self._by_certificate(certificate)
            return found or (None if self.has_tokens else UNAUTHENTICATED)
        return None if self.has_tokens else self.admission(user)

    def _by_certificate(self, certificate: bytes | None) -> Admission | None:
        found = self.authentication.by_certificate(certificate) if certificate is not None else None
        if isinstance(found, Rejected):
            self.reports.log_limited("certificate rejected", reason=found.reason, detail=found.detail)
        return self.admission(found) if isinstance(found, Admitted) else None

    def by_token(self, token: str) -> Admission | None:
        found = self.authentication.by_token(token)
        return self.admission(found) if found is not None else None

    def admission(self, admitted: Admitted) -> Admission:
        identity = admitted.identity
        proof = f"{identity.kind} {identity.label}" if identity is not None else ""
        return Admission(admitted.principal, proof, partial(self.authentication.is_current, admitted))

    def user(self, connected: socket.socket) -> str:
        """Return the user of a connection on this machine as `uid N`, where requests prove who they are; empty: the
        kernel does not name it. Raises PeerGone."""
        if not self.has_tokens or not _is_on_this_machine(connected):
            return ""
        uid = self.local_peers.uid(connected)
        return f"uid {uid}" if uid is not None else ""

    def connection_check(self, requests: RequestAccess) -> ConnectionCheck:
        public = frozenset(path.encode() for path in health.PUBLIC_PATHS)

        def by_request(scope: dict[str, Any]) -> Admission | None:
            try:
                return requests.admit(scope)
            except HttpError:  # its cookie may be sent by another page
                return None

        rejects_forwarded = self.rule is not LoopbackRule.ANYONE
        return ConnectionCheck(self.admit, public, rejects_forwarded, self.user, by_request)

    def request_access(self, now: Callable[[], float], is_tls: bool, report: Report) -> RequestAccess:
        if not self.has_tokens:
            return RequestAccess(report=report)
        return RequestAccess(self.by_token, LoginSessions(random_bytes, now), is_tls, report, self._log)

    def _log(self, event: str, address: str, admission: Admission | None) -> None:
        if admission is None:
            self.reports.log_limited(event, address=address)
        else:
            name = admission.principal.name
            self.reports.remark_of(f"principal {name}", event, principal=name, proof=admission.proof, address=address)


def _is_on_this_machine(connected: socket.socket) -> bool:
    """Tell if the kernel knows both ends of a connection. A client of this machine that connects to another one of its
    addresses has that address, too."""
    return is_local(connected) or connected.getpeername()[0] == connected.getsockname()[0]


def http_access(request: ListenRequest, local_peers: LocalPeers, rule: LoopbackRule) -> HttpAccess:
    context, place = request.context, request.address.place
    assert context is not None, "HTTP needs an event loop"
    return HttpAccess(
        context.access_control.authentication,
        local_peers,
        rule,
        request.runner.reports,
        has_tokens=request.security.asks_tokens_of_requests,
        verifies_certificates=verifies_clients(place),
        is_local=is_loopback(place),
    )
