"""HTTP requests of operations: method, path, query and body from an operation's name, its request and a payload.

A field that the path names stands in the path. The others are in the query of a GET, and in the JSON body of all else.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from urllib.parse import quote, urlencode

from dragoman.carriers.carrier import Frame
from dragoman.dialects.http.codec import BYTES, JSON, path_part
from dragoman.operations.table import OPERATIONS

# The broker's own sentences about empty names, for which there is no path.
_EMPTY = {"id": "a job's id is 32 lower-case hex digits", "name": "must not be empty"}
_NAMED = re.compile(r"\{(\w+)\}")


def http_request_for(operation: str, form: bytes, payload: Frame = b"") -> list[Frame]:
    """The request's line, fields and body, as the carrier takes them. Raises ValueError for an empty name."""
    row = OPERATIONS[operation]
    method, path = row.method, row.path
    said = json.loads(form or b"{}")

    def named(found: re.Match[str]) -> str:
        value = str(said.pop(found[1]))
        if not value:
            raise ValueError(f"{found[1]}: {_EMPTY[found[1]]}")
        return path_part(value)

    path = _NAMED.sub(named, path)
    if operation == "enqueue":
        return [_line(method, path, said), BYTES, payload]
    if method in ("GET", "DELETE"):
        return [_line(method, path, said), b"", b""]
    if payload:
        said["payload_base64"] = b64encode(payload).decode()
    if not said:
        return [_line(method, path, {}), b"", b""]
    return [_line(method, path, {}), JSON, json.dumps(said).encode()]


def _line(method: str, path: str, query: dict[str, object]) -> bytes:
    words = {name: value if isinstance(value, str) else json.dumps(value) for name, value in query.items()}
    target = f"{path}?{urlencode(words, quote_via=quote)}" if words else path
    return f"{method} {target}".encode("ascii")
