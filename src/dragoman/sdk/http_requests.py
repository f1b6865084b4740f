"""HTTP requests of operations: method, path, query and body from an operation's name, its request and a payload.

Fields named in the path go into the path. Other fields go into the query of a GET, else into the JSON body.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from urllib.parse import quote, urlencode

from dragoman.carriers.carrier import Frame
from dragoman.dialects.http.codec import BYTES, JSON, path_part
from dragoman.operations.table import OPERATIONS

# An empty name has no path, so the client raises the broker's errors itself.
_EMPTY = {"id": "must be 32 lower-case hex digits", "name": "must not be empty"}
_NAMED = re.compile(r"\{(\w+)\}")


def http_request_for(operation: str, request: bytes, payload: Frame = b"") -> list[Frame]:
    """Return request line, content type and body for the carrier. Raises ValueError for an empty name."""
    row = OPERATIONS[operation]
    method, path = row.method, row.path
    fields = json.loads(request or b"{}")

    def named(found: re.Match[str]) -> str:
        value = str(fields.pop(found[1]))
        if not value:
            raise ValueError(f"{found[1]}: {_EMPTY[found[1]]}")
        return path_part(value)

    path = _NAMED.sub(named, path)
    if operation in ("enqueue", "enqueue many"):
        return [_line(method, path, fields), BYTES, payload]
    if method in ("GET", "DELETE"):
        return [_line(method, path, fields), b"", b""]
    if payload:
        fields["payload_base64"] = b64encode(payload).decode()
    if not fields:
        return [_line(method, path, {}), b"", b""]
    return [_line(method, path, {}), JSON, json.dumps(fields).encode()]


def _line(method: str, path: str, query: dict[str, object]) -> bytes:
    values = [(name, each) for name, value in query.items() for each in (value if isinstance(value, list) else [value])]
    texts = [(name, each if isinstance(each, str) else json.dumps(each)) for name, each in values]
    target = f"{path}?{urlencode(texts, quote_via=quote)}" if texts else path
    return f"{method} {target}".encode("ascii")
