"""The client's side of HTTP: one request at a time on a connection.

A caller that stops waiting disconnects, which cancels its call. A call ends with its connection, because it must not
run twice; an operation is sent again on the next connection.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.core.infinity import inf
from dragoman.dialects import sides
from dragoman.dialects.http.codec import ALIVE as ALIVE
from dragoman.dialects.http.codec import (
    OUTCOMES,
    Problem,
    Request,
    Response,
    add_field,
    operation_error,
    packed,
    read_problem,
    read_response,
    too_large,
    write_call,
    write_extras,
    write_outcome,
)
from dragoman.dialects.http.codec import PROBE as PROBE
from dragoman.dialects.http.codec import check_services as check_services
from dragoman.dialects.sides import ClientIO, JobExtras, Outcome, SubmitOptions

IDLE: Final = 4.0  # seconds without a request after which the client disconnects; the broker does so after 15
BYTES: Final = b"application/octet-stream"
TOO_LARGE: Final = "too large"
MOST_HEADS_KEPT: Final = 1024  # of calls, encoded once for all with the same options

WriteOperation = Callable[[str, bytes, Frame], Request]


class ClientSide(sides.ClientSide):
    """The client's side. `write_operation` returns the HTTP request for an operation's name, request and payload; it
    raises ValueError for values that HTTP cannot express."""

    patience = inf
    hint = ""

    def __init__(self, io: ClientIO, write_operation: WriteOperation) -> None:
        self._io = io
        self._write_operation = write_operation
        self._job_ref: Hashable = None  # of the request in progress; None: there is none
        self._operation = ""  # its name, or empty for a call
        self._request: Request = []
        self._again: Callable[[], Request] | None = None  # writes one more copy of the request, if copies differ
        self._size = 0  # bytes of the request's content
        self._since = inf  # time of the last request or response
        self._heads: dict[SubmitOptions, tuple[bytes, bytes]] = {}

    @property
    def outlives_connections(self) -> bool:
        return self._job_ref is not None and bool(self._operation)

    def opened(self, now: float) -> None:
        self._since = now
        if self._job_ref is not None:  # it was sent on the last connection
            self._io.send(self._request if self._again is None else self._again())

    def lost(self) -> None:
        pass

    def call(self, job_ref: Hashable, service: str, payload: Frame, timeout: float | None, now: float) -> None:
        raise AssertionError("HTTP calls have options: use submit")

    def submit(
        self,
        job_ref: Hashable,
        submit_options: SubmitOptions,
        payload: Frame,
        id: bytes,
        now: float,
        extras: JobExtras | None = None,
    ) -> None:
        self._again = None
        line, fields = self._heads.get(submit_options) or self._head(submit_options)
        if extras is not None:
            fields += write_extras(extras)
        self._send(job_ref, "", [line, fields, payload], len(payload), now)

    def ask(
        self,
        job_ref: Hashable,
        operation: str,
        request: bytes,
        payload: Frame,
        id: bytes,
        now: float,
        extras: JobExtras | None = None,
        number: Callable[[], str] | None = None,
    ) -> None:
        def written() -> Request:
            numbered = request if number is None else add_field(request, "request_id", number())
            http_request = self._write_operation(operation, numbered, payload)
            if extras is not None:
                http_request[1] = bytes(http_request[1]) + write_extras(extras)
            return http_request

        try:
            http_request = written()
        except ValueError as error:
            self._io.operation_failed(job_ref, "invalid", f"{operation}: {error}")
            return
        self._again = written if number is not None else None
        self._send(job_ref, operation, http_request, len(payload) or len(request), now)

    def receive(self, message: Message | TooLarge, now: float) -> None:
        assert not isinstance(message, TooLarge)  # the carrier closes the connection instead
        response = read_response(message)
        self._since = now
        job_ref, self._job_ref = self._job_ref, None
        self._request, self._again = [], None
        if job_ref is not None:
            self._receive_response(job_ref, response)
        if response.is_last:
            self._io.reconnect("the broker closes this connection")

    def cancel(self, id: bytes, now: float) -> None:
        """Disconnect, which cancels the call: a connection carries one at a time."""
        job_ref, self._job_ref = self._job_ref, None
        if job_ref is not None:
            self._io.ended(job_ref, Outcome.CANCELLED, "its caller cancelled it")
            self._io.reconnect("a call was cancelled")

    def forget(self, job_ref: Hashable, id: bytes, now: float) -> None:
        self._job_ref = None  # the connection is closed next

    def tick(self, now: float) -> float:
        if self._job_ref is not None:
            return inf
        if now >= self._since + IDLE:
            self._io.reconnect("it is idle")
            return inf
        return self._since + IDLE

    def _send(self, job_ref: Hashable, operation: str, request: Request, size: int, now: float) -> None:
        assert self._job_ref is None, "a connection carries one request at a time"
        self._job_ref = job_ref
        self._operation = operation
        self._request = request
        self._size = size
        self._since = now
        self._io.send(request)

    def _head(self, submit_options: SubmitOptions) -> tuple[bytes, bytes]:
        if len(self._heads) >= MOST_HEADS_KEPT:
            self._heads.clear()
        head = self._heads[submit_options] = write_call(submit_options)
        return head

    def _receive_response(self, job_ref: Hashable, response: Response) -> None:
        if response.is_done:
            if not self._operation:
                self._io.answered(job_ref, response.body)
            elif response.fields.get(b"content-type") == BYTES:
                self._io.told(job_ref, write_outcome(Outcome.DONE.value, ""), response.body)
            else:
                self._io.told(job_ref, bytes(response.body), b"")
            return
        problem = read_problem(response)
        if self._operation:
            self._receive_error(job_ref, problem)
        elif problem.is_outcome:
            self._io.ended(job_ref, OUTCOMES.get(problem.kind), problem.detail, problem.failure)
        else:
            sentence = problem.detail
            if problem.kind == TOO_LARGE:
                sentence = too_large(problem, self._size, "a payload")
            self._io.ended(job_ref, Outcome.REFUSED, sentence, refusal=problem.kind)

    def _receive_error(self, job_ref: Hashable, problem: Problem) -> None:
        if problem.is_outcome and problem.kind in OUTCOMES:
            self._io.told(job_ref, write_outcome(problem.kind, problem.detail), packed(problem.failure))
        elif problem.kind == TOO_LARGE:
            self._io.operation_failed(job_ref, TOO_LARGE, too_large(problem, self._size, "an operation"))
        else:
            self._io.operation_failed(job_ref, problem.kind, operation_error(self._operation, problem))
