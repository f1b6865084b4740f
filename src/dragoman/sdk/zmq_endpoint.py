"""Endpoints as ZeroMQ writes them, made into addresses of ours."""

from __future__ import annotations

import os
from urllib.parse import quote


def url_from_endpoint(endpoint: str, dialect: str) -> str:
    """The URL of `ipc:///tmp/a.ipc`, `ipc://relative.ipc`, `tcp://127.0.0.1:9001` or `tcp://*:*`.

    Whether it is a good one is for `address.parse` to say.
    """
    transport, separator, place = endpoint.partition("://")
    if transport == "ipc" and place and not place.startswith("@"):
        place = os.path.abspath(place)
    elif transport == "tcp":
        host, colon, port = place.rpartition(":")
        place = f"{'0.0.0.0' if host == '*' else host}{colon}{'0' if port == '*' else port}"
    return f"{dialect}+{transport}{separator}{quote(place, safe='/:[]@')}"
