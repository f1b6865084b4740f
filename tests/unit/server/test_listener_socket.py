"""The handshakes that are limited, by listener (R168)."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.rights import Principals
from dragoman.server.acceptor import ListenerSocket
from dragoman.server.authentication import Authentication, AuthMechanism, ListenerAuth
from dragoman.server.connection_limits import DEFAULT_LIMITS

TLS: Any = object()


@pytest.mark.parametrize(
    ("tls", "auth", "expected"),
    [
        (None, None, ""),
        (None, AuthMechanism.NONE, ""),
        (None, AuthMechanism.CURVE, "curve"),
        (None, AuthMechanism.TOKEN, "token"),
        (TLS, None, "tls"),
        (TLS, AuthMechanism.TOKEN, "tls"),
    ],
)
def test_mechanism_of_a_listener(tls: Any, auth: AuthMechanism | None, expected: str) -> None:
    listener_auth = None
    if auth is not None:
        listener_auth = ListenerAuth(Authentication(Principals()), auth, verifies_certificates=False, is_open=True)
    nothing: Any = None
    listener = ListenerSocket(nothing, "", nothing, nothing, DEFAULT_LIMITS, tls=tls, auth=listener_auth)
    assert listener.mechanism == expected
