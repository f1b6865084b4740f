"""The default URL of clients, workers and commands."""

from __future__ import annotations

import os

from dragoman.sdk.address import URL_VARIABLE
from dragoman.sdk.address_list import Urls, checked_urls

DEFAULT_URL = "tcp://127.0.0.1:7400"


def url_or_default(url: Urls | None) -> str | tuple[str, ...]:
    """Return the given URLs, else that of the environment, else the native port of a broker on this machine. Raises
    AddressError for an empty list."""
    return checked_urls(os.environ.get(URL_VARIABLE) or DEFAULT_URL if url is None or url == "" else url)
