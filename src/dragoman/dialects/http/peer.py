"""A client's side of HTTP: one request at a time on a connection.

A caller that does not wait any more hangs up, which withdraws its call. A call ends with its connection, for it must
not run twice; an operation is asked for again on the next connection, as it may be.
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
    packed,
    read_problem,
    read_response,
    told_about,
    too_large,
    write_call,
    write_outcome,
)
from dragoman.dialects.http.codec import PROBE as PROBE
from dragoman.dialects.http.codec import check_services as check_services
from dragoman.dialects.sides import ClientIO, Outcome, SubmitOptions

IDLE: Final = 4.0  # seconds without a request after which we hang up; the broker does so after 15
BYTES: Final = b"application/octet-stream"
TOO_LARGE: Final = "too large"
MOST_HEADS_KEPT: Final = 1024  # of calls, written once for all that ask for the same

WriteOperation = Callable[[str, bytes, Frame], Request]


class ClientSide(sides.ClientSide):
    """A client's side. `write_operation` makes the request of an operation from its name, its form and a payload; it
    raises ValueError for what no request can say."""

    patience = inf
    hint = ""

    def __init__(self, port: ClientIO, write_operation: WriteOperation) -> None:
        self._port = port
        self._write_operation = write_operation
        self._job_ref: Hashable = None  # what the request under way is for; none: there is no request
        self._operation = ""  # its name, if it is no call
        self._request: Request = []
        self._size = 0  # bytes that it says
        self._since = inf  # when the last request was sent, or the last response came
        self._heads: dict[SubmitOptions, tuple[bytes, bytes]] = {}

    @property
    def outlives_connections(self) -> bool:
        return self._job_ref is not None and bool(self._operation)

    def opened(self, now: float) -> None:
        self._since = now
        if self._job_ref is not None:  # it was asked for on the last connection
            self._port.send(self._request)

    def lost(self) -> None:
        pass

    def call(self, job_ref: Hashable, service: str, payload: Frame, timeout: float | None, now: float) -> None:
        raise AssertionError("calls are submitted with their options")

    def submit(self, job_ref: Hashable, submit_options: SubmitOptions, payload: Frame, id: bytes, now: float) -> None:
        io, fields = self._heads.get(submit_options) or self._head(submit_options)
        self._send(job_ref, "", [io, fields, payload], len(payload), now)

    def ask(self, job_ref: Hashable, question: str, form: bytes, payload: Frame, id: bytes, now: float) -> None:
        try:
            request = self._write_operation(question, form, payload)
        except ValueError as error:
            self._port.operation_failed(job_ref, "invalid", f"{question}: {error}")
            return
        self._send(job_ref, question, request, len(form) + len(payload), now)

    def receive(self, message: Message | TooLarge, now: float) -> None:
        assert not isinstance(message, TooLarge)  # this carrier ends the connection instead
        response = read_response(message)
        self._since = now
        job_ref, self._job_ref = self._job_ref, None
        self._request = []
        if job_ref is not None:
            self._receive_answer(job_ref, response)
        if response.is_last:
            self._port.reconnect("the broker ends this connection")

    def cancel(self, id: bytes, now: float) -> None:
        """Hang up, which withdraws the call: a connection carries one at a time."""
        job_ref, self._job_ref = self._job_ref, None
        if job_ref is not None:
            self._port.ended(job_ref, Outcome.CANCELLED, "its caller withdrew it")
            self._port.reconnect("a call was withdrawn")

    def forget(self, job_ref: Hashable, id: bytes, now: float) -> None:
        self._job_ref = None  # the connection is closed next

    def tick(self, now: float) -> float:
        if self._job_ref is not None:
            return inf
        if now >= self._since + IDLE:
            self._port.reconnect("it is not needed")
            return inf
        return self._since + IDLE

    def _send(self, job_ref: Hashable, operation: str, request: Request, size: int, now: float) -> None:
        assert self._job_ref is None, "this wire carries one request at a time"
        self._job_ref = job_ref
        self._operation = operation
        self._request = request
        self._size = size
        self._since = now
        self._port.send(request)

    def _head(self, submit_options: SubmitOptions) -> tuple[bytes, bytes]:
        if len(self._heads) >= MOST_HEADS_KEPT:
            self._heads.clear()
        head = self._heads[submit_options] = write_call(submit_options)
        return head

    def _receive_answer(self, job_ref: Hashable, response: Response) -> None:
        if response.is_done:
            if not self._operation:
                self._port.answered(job_ref, response.body)
            elif response.fields.get(b"content-type") == BYTES:
                self._port.told(job_ref, write_outcome(Outcome.DONE.value, ""), response.body)
            else:
                self._port.told(job_ref, bytes(response.body), b"")
            return
        problem = read_problem(response)
        if self._operation:
            self._receive_error(job_ref, problem)
        elif problem.is_outcome:
            self._port.ended(job_ref, OUTCOMES.get(problem.kind), problem.detail, problem.failure)
        else:
            sentence = problem.detail
            if problem.kind == TOO_LARGE:
                sentence = too_large(problem, self._size, "a payload")
            self._port.ended(job_ref, Outcome.REFUSED, sentence, refusal=problem.kind)

    def _receive_error(self, job_ref: Hashable, problem: Problem) -> None:
        if problem.is_outcome and problem.kind in OUTCOMES:
            self._port.told(job_ref, write_outcome(problem.kind, problem.detail), packed(problem.failure))
        elif problem.kind == TOO_LARGE:
            self._port.operation_failed(job_ref, TOO_LARGE, too_large(problem, self._size, "a question"))
        else:
            self._port.operation_failed(job_ref, problem.kind, told_about(self._operation, problem))
