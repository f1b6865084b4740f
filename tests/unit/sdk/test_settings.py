"""The default URL."""

from __future__ import annotations

import pytest

from dragoman import AsyncClient, Client, Worker
from dragoman.sdk.default_url import url_or_default


@pytest.mark.parametrize(
    ("given", "environment", "used"),
    [
        (None, None, "tcp://127.0.0.1:7400"),
        (None, "", "tcp://127.0.0.1:7400"),
        (None, "http://127.0.0.1:7480", "http://127.0.0.1:7480"),
        ("memodb+tcp://127.0.0.1:7405", "http://127.0.0.1:7480", "memodb+tcp://127.0.0.1:7405"),
    ],
)
def test_what_is_given_goes_before_the_environment(
    given: str | None, environment: str | None, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if environment is None:
        monkeypatch.delenv("DRAGOMAN_URL", raising=False)
    else:
        monkeypatch.setenv("DRAGOMAN_URL", environment)
    assert url_or_default(given) == used
    assert (Client(given).url, AsyncClient(given).url, Worker(given).url) == (used,) * 3
