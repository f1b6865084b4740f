"""A listener with `auth=token`, without sockets."""

from __future__ import annotations

from itertools import count
from typing import Any

import httpx2
from http_world import World

from dragoman.core.rights import PrincipalLimits, Rights
from dragoman.http.admission import Admission
from dragoman.http.login_sessions import LoginSessions
from dragoman.http.request_access import RequestAccess

WEB, OPS, EXPIRED, UNKNOWN = "dgm_web", "dgm_ops", "dgm_expired", "dgm_unknown"
HOST = "127.0.0.1:7480"
OWN = {"Origin": f"http://{HOST}"}


class TokenWorld(World):
    """A listener with `auth=token`. `web` may call mail and work for resize, `ops` may do everything."""

    def __init__(self, *, is_tls: bool = False, **policy: Any) -> None:
        super().__init__(**policy)
        self.admission = None
        rights = {
            "web": Rights(call=["mail.*"], work=["resize"]),
            "ops": Rights(call=["*"], work=["*"], see=["*"], administer=["*"]),
        }
        self.broker.principals.apply({name: (each, PrincipalLimits()) for name, each in rights.items()})
        self.revoked: set[str] = set()
        self.asked: list[str] = []
        self.reports: list[str] = []
        self.logged: list[tuple[str, str]] = []
        self.ended = 0
        numbers = count(1)
        self.sessions = LoginSessions(lambda size: next(numbers).to_bytes(size, "big"), lambda: self.now)
        self.use(
            RequestAccess(
                self._by_token,
                self.sessions,
                is_tls,
                lambda reason, address, detail: self.reports.append(reason),
                lambda event, address, admission: self.logged.append(
                    (event, admission.principal.name if admission else "")
                ),
                self._end_revoked,
            )
        )

    def _by_token(self, token: str) -> Admission | None:
        self.asked.append(token)
        name = {WEB: "web", OPS: "ops"}.get(token)
        if name is None or name in self.revoked:
            return None
        return Admission(self.broker.principals.named(name), f"token {name}", lambda: name not in self.revoked)

    def _end_revoked(self) -> int:
        self.ended += 1
        return 0

    def certified(self, name: str) -> None:
        """The connection has shown the certificate of this principal."""
        self.admission = Admission(self.broker.principals.named(name), "tls_name x")

    def login(self, token: str = WEB) -> str:
        """Log in. Returns the cookie."""
        answer = self.ask("POST", "/login", data={"token": token}, headers=OWN)
        assert answer.status_code == 303
        self._client.cookies.clear()
        return answer.headers["set-cookie"].partition(";")[0]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def who(answer: httpx2.Response) -> str:
    """Return the principal that the start page shows; else the status."""
    if answer.status_code != 200:
        return str(answer.status_code)
    return answer.text.partition("<strong>")[2].partition("</strong>")[0]
