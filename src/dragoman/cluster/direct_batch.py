"""The replies to a DIRECT.GET of JetStream: messages in order, and the marker of the end.

The replies of a batch are ordinary messages of core NATS, so one may be lost. Each names the stream and the sequence of
the message before it, and the marker names the last one: a batch with a gap, or of another stream, is not used.
"""

from __future__ import annotations

from typing import Final

from dragoman.carriers.nats_headers import END_OF_BATCH, NOT_FOUND
from dragoman.cluster.jetstream import StoredMessage, nanoseconds
from dragoman.cluster.requests import Answer, AnswerKind

STREAM: Final = b"Nats-Stream"
SUBJECT: Final = b"Nats-Subject"
SEQUENCE: Final = b"Nats-Sequence"
TIME: Final = b"Nats-Time-Stamp"
PENDING: Final = b"Nats-Num-Pending"
LAST: Final = b"Nats-Last-Sequence"


class DirectBatch:
    """Collects the messages of one request. Pass its `receive` as the function of the request."""

    __slots__ = ("_is_single", "_stream", "is_done", "messages", "pending", "problem")

    def __init__(self, stream: str, *, is_single: bool = False) -> None:
        """`is_single`: one message was asked for, and no marker follows."""
        self._stream = stream.encode()
        self._is_single = is_single
        self.messages: list[StoredMessage] = []
        self.pending = 0  # messages of the stream after these, at the replica that answered
        self.is_done = False  # the marker has come, or there is a problem
        self.problem = ""  # the messages are not complete; ask again

    def receive(self, answer: Answer, now: float) -> bool:
        """Take a reply. Returns whether another one is expected."""
        if self.is_done:
            return False
        if answer.kind is not AnswerKind.REPLY:
            self._end(answer.kind.name.lower().replace("_", " "))
        elif answer.headers.status == NOT_FOUND:
            self._end("" if not self.messages else "the end came as an error")
        elif answer.headers.status == END_OF_BATCH:
            self._end_in_order(answer)
        elif answer.headers.status:
            self._end(f"{answer.headers.status} {answer.headers.description.decode('utf-8', 'replace')}")
        else:
            self._take(answer)
        return not self.is_done

    def _take(self, answer: Answer) -> None:
        headers = answer.headers
        sequence, time = headers.number(SEQUENCE), nanoseconds(headers.get(TIME) or b"")
        if headers.get(STREAM) != self._stream:
            self._end("a message of another stream")
        elif sequence is None or not sequence or time is None:
            self._end("a message without a sequence or a time")
        elif self._is_single:
            self._add(answer, sequence, time)
            self._end("")
        elif headers.number(LAST) != self._last or sequence <= self._last:
            self._end(f"a message before {sequence} is missing")
        else:
            self.pending = headers.number(PENDING) or 0
            self._add(answer, sequence, time)

    def _add(self, answer: Answer, sequence: int, time: int) -> None:
        subject = (answer.headers.get(SUBJECT) or b"").decode("utf-8", "replace")
        self.messages.append(StoredMessage(sequence, subject, time, answer.payload))

    def _end_in_order(self, answer: Answer) -> None:
        last = answer.headers.number(LAST)
        self.pending = answer.headers.number(PENDING) or 0
        self._end("" if last == self._last else f"a message up to {last} is missing")

    def _end(self, problem: str) -> None:
        self.is_done = True
        self.problem = problem

    @property
    def _last(self) -> int:
        return self.messages[-1].sequence if self.messages else 0
