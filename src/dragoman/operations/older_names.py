"""Names in earlier editions of operations and views, for native clients that announce no newer edition in HELLO.

Edition 2 renamed the operations on schedules and two fields of views. A client of edition 1 still sends and receives
the names below; requests have the same fields in both editions.

Edition 3 added the state `dependent` of jobs, and a kind of `why` with the same name. A client of an earlier edition
refuses a view with a word that it does not know. For such a client the job is `delayed`: it is not in its queue yet.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from dragoman.core.failure import Failure
from dragoman.core.model import Payload
from dragoman.core.owners import Owner
from dragoman.operations.responders import JsonResponder

EDITION: Final = 3  # the newest
RENAMED: Final = 2  # the one that has the names of today

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
DEPENDENT: Final = "dependent"
DELAYED: Final = "delayed"
WORD: Final = b'"dependent"'  # in a view that may have the state; most have not, and are not decoded
STATES: Final = ("state", "kind")  # fields whose value may be that word


class OlderResponder:
    """Passes responses to a client of an earlier edition, with the names of that edition."""

    __slots__ = ("_is_renamed", "_responder")

    def __init__(self, responder: JsonResponder, operation: str) -> None:
        self._responder = responder
        self._is_renamed = responder.edition < RENAMED and operation in RENAMED_VIEWS

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
        if WORD in view:
            view = msgspec.json.encode(_with_known_states(msgspec.json.decode(view)))
        if self._is_renamed:
            view = msgspec.json.encode(_renamed(msgspec.json.decode(view)))
        self._responder.tell(view, payload, failure)

    def object(self, kind: str, detail: str) -> None:
        self._responder.object(kind, detail)


def _renamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {FIELDS.get(key, key): _renamed(each) for key, each in value.items()}
    return [_renamed(each) for each in value] if isinstance(value, list) else value


def _with_known_states(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: DELAYED if key in STATES and each == DEPENDENT else _with_known_states(each)
            for key, each in value.items()
        }
    return [_with_known_states(each) for each in value] if isinstance(value, list) else value
