"""Operations of a native client that have no response yet, across any number of connections."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final

from dragoman.carriers.carrier import Frame
from dragoman.dialects.native.codec import write_ask
from dragoman.dialects.native.extras import PARAMETERS, REQUEST_ID, add_extras, add_field, without_parameters
from dragoman.dialects.native.messages import MOST_TEXT, Welcome
from dragoman.dialects.sides import JobExtras

WITH_PARAMETERS: Final = ("enqueue", "enqueue many")  # operations that have the field
IN_JSON: Final = b'"parameters"'


class PendingOperation:
    """An operation without a response."""

    __slots__ = ("extras", "is_sent", "job_ref", "number", "payload", "request", "text")

    def __init__(
        self,
        job_ref: Hashable,
        text: str,
        request: bytes,
        payload: Frame,
        extras: JobExtras | None,
        number: Callable[[], str] | None = None,
    ) -> None:
        self.job_ref = job_ref  # None: forgotten by its caller, but counted until its response comes
        self.text = text
        self.request = request
        self.payload = payload
        self.extras = extras
        self.number = number  # returns the field `request_id` of each copy
        self.is_sent = False  # on this connection


class ClientOperations:
    """All operations without a response, by number. The broker forgets them with the connection."""

    __slots__ = ("_in_flight", "_pending", "_unsent")

    def __init__(self) -> None:
        self._pending: dict[bytes, PendingOperation] = {}
        self._unsent: deque[bytes] = deque()  # those that were not sent on this connection
        self._in_flight = 0  # number of those that were sent

    def add(self, number: bytes, operation: PendingOperation) -> None:
        self._pending[number] = operation
        self._unsent.append(number)

    def unsent(self, welcome: Welcome) -> Iterator[Sequence[Frame]]:
        """Yield the messages of as many unsent operations as the window allows."""
        unsent = self._unsent
        while unsent and self._in_flight < welcome.window:
            number = unsent.popleft()
            operation = self._pending.get(number)
            if operation is not None:  # None if its caller has forgotten it
                operation.is_sent = True
                self._in_flight += 1
                request = operation.request
                if operation.extras is not None:
                    request = add_extras(request, operation.extras, welcome.extras, MOST_TEXT)
                if operation.text in WITH_PARAMETERS and PARAMETERS not in welcome.extras and IN_JSON in request:
                    request = without_parameters(request)
                if operation.number is not None and REQUEST_ID in welcome.extras:
                    request = add_field(request, REQUEST_ID, operation.number(), MOST_TEXT)
                yield write_ask(number, operation.text, request, operation.payload)

    def end(self, number: bytes) -> Hashable:
        """Remove an operation. Returns its `job_ref`, or None if its caller has forgotten it."""
        operation = self._pending.pop(number, None)
        if operation is None:
            return None
        self._in_flight -= operation.is_sent
        return operation.job_ref

    def forget(self, number: bytes) -> None:
        """Drop an operation whose caller does not wait any more."""
        operation = self._pending.get(number)
        if operation is not None and operation.is_sent:
            operation.job_ref = None
        elif operation is not None:
            del self._pending[number]

    def lost(self) -> None:
        """Mark all operations as unsent: the connection has ended."""
        self._pending = {number: each for number, each in self._pending.items() if each.job_ref is not None}
        for operation in self._pending.values():
            operation.is_sent = False
        self._unsent = deque(self._pending)
        self._in_flight = 0
