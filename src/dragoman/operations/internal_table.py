"""Operations that brokers of a cluster ask each other for. No client can: they have no route and no command."""

from __future__ import annotations

from typing import Any, Final

from dragoman.operations.operation import Operation
from dragoman.operations.pins import PIN
from dragoman.operations.reserved_keys import HOLDERS, RESERVE
from dragoman.operations.table import OPERATIONS

INTERNAL: Final[dict[str, Operation[Any, Any]]] = {row.name: row for row in (PIN, RESERVE, HOLDERS)}


def row_of(operation: str) -> Operation[Any, Any] | None:
    """Return the row of an operation, for clients or for brokers."""
    return OPERATIONS.get(operation) or INTERNAL.get(operation)
