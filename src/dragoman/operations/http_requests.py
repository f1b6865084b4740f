"""HTTP requests of operations, as a client writes them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from dragoman.operations.operation import Operation
from dragoman.operations.schemas import OperationRequest


def target_of(row: Operation[Any, Any], request: OperationRequest) -> str:
    """The path and the query."""
    said = msgspec.to_builtins(request)
    names = {name: quote(str(said.pop(name)), safe="") for name in row.path_fields}
    path = row.path.format_map(names)
    return (
        f"{path}?{urlencode({name: _word(each) for name, each in said.items()})}" if said and not row.has_body else path
    )


def _word(value: Any) -> str:
    """A value in a query: `true`, `null` and numbers as JSON has them, text as it is."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
