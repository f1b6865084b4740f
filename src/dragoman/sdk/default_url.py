"""The default URL of clients, workers and commands."""

from __future__ import annotations

import os

from dragoman.sdk.address import URL_VARIABLE

DEFAULT_URL = "tcp://127.0.0.1:7400"


def url_or_default(url: str | None) -> str:
    """Return the given URL, else that of the environment, else the native port of a broker on this machine."""
    return url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
