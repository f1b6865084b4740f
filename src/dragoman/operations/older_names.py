"""Names of operations and fields in edition 1, for native clients that announce no newer edition in HELLO.

Edition 2 renamed the operations on schedules and two fields of views. A client of edition 1 still sends and receives
the names below; requests have the same fields in both editions.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from dragoman.core.failure import Failure
from dragoman.core.model import Payload
from dragoman.core.owners import Owner
from dragoman.operations.responders import JsonResponder

EDITION: Final = 2

OPERATIONS: Final = {
    "recurring": "schedules",
    "recurrence": "schedule",
    "recur": "set schedule",
    "stop recurring": "delete schedule",
    "pause recurring": "pause schedule",
    "resume recurring": "resume schedule",
}
FIELDS: Final = {"schedules": "recurring", "stuck": "unproven"}
RENAMED_VIEWS: Final = frozenset({"recurring", "workers", "worker", "drain"})  # operations whose views have such fields


class OlderResponder:
    """Passes views of `RENAMED_VIEWS` to a client of edition 1, with the field names of that edition."""

    __slots__ = ("_responder",)

    def __init__(self, responder: JsonResponder) -> None:
        self._responder = responder

    @property
    def owner(self) -> Owner:
        return self._responder.owner

    @property
    def dialect(self) -> str:
        return self._responder.dialect

    @property
    def origin(self) -> str:
        return self._responder.origin

    @property
    def edition(self) -> int:
        return EDITION

    def tell(self, view: bytes, payload: Payload, failure: Failure | None) -> None:
        self._responder.tell(msgspec.json.encode(_renamed(msgspec.json.decode(view))), payload, failure)

    def object(self, kind: str, detail: str) -> None:
        self._responder.object(kind, detail)


def _renamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {FIELDS.get(key, key): _renamed(each) for key, each in value.items()}
    return [_renamed(each) for each in value] if isinstance(value, list) else value
