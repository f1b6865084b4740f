"""Converts ZeroMQ endpoints to Dragoman URLs."""

from __future__ import annotations

import os
from urllib.parse import quote


def url_from_endpoint(endpoint: str, dialect: str) -> str:
    """Return the URL of `ipc:///tmp/a.ipc`, `ipc://relative.ipc`, `tcp://127.0.0.1:9001` or `tcp://*:*`.

    The result is not validated; `address.parse` does that.
    """
    transport, separator, place = endpoint.partition("://")
    if transport == "ipc" and place and not place.startswith("@"):
        place = os.path.abspath(place)
    elif transport == "tcp":
        host, colon, port = place.rpartition(":")
        place = f"{'0.0.0.0' if host == '*' else host}{colon}{'0' if port == '*' else port}"
    return f"{dialect}+{transport}{separator}{quote(place, safe='/:[]@')}"
