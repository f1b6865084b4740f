"""HTTP requests of operations, as a client writes them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from dragoman.operations.operation import Operation
from dragoman.operations.schemas import OperationRequest


def target_of(row: Operation[Any, Any], request: OperationRequest) -> str:
    """Return the path and the query of an HTTP request."""
    values = msgspec.to_builtins(request)
    names = {name: quote(str(values.pop(name)), safe="") for name in row.path_fields}
    path = row.path.format_map(names)
    if not values or row.has_body:
        return path
    listed = [
        (name, each) for name, value in values.items() for each in (value if isinstance(value, list) else [value])
    ]
    return f"{path}?{urlencode([(name, _query_value(each)) for name, each in listed])}"


def _query_value(value: Any) -> str:
    """Format a value for a query: `true`, `null` and numbers as JSON, text unchanged."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
