"""Access to the log of one shard: an interface, and its implementation on JetStream.

Answers come later, in calls of the functions that were passed in, or within the call if there is no connection. No
answer is final but a message that was read: what is stored under a sequence never changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, final

from mypy_extensions import mypyc_attr

from dragoman.cluster.direct_batch import DirectBatch
from dragoman.cluster.jetstream import (
    NO_SPACE,
    ApiError,
    ApiRequest,
    Append,
    StoredMessage,
    StreamState,
    append,
    direct_batch,
    message_get,
    read_append,
    read_message,
    read_purged,
    read_stream,
    stream_info,
    stream_purge,
)
from dragoman.cluster.nats_client import NatsClient
from dragoman.cluster.requests import Answer

APPEND_TIMEOUT: Final = 1.0  # seconds; the same append is sent again then
ASK_TIMEOUT: Final = 2.0
BATCH_TIMEOUT: Final = 2.0  # between two messages of a batch


T = TypeVar("T")


@mypyc_attr(allow_interpreted_subclasses=True)
class LogIO:
    """Requests about one log."""

    @property
    def max_message(self) -> int:
        """Bytes of a message that the log accepts."""
        raise NotImplementedError

    def append(self, payload: bytes, expected: int, done: Callable[[Append, float], None], now: float) -> None:
        """Append a message if the log ends with the sequence `expected`."""
        raise NotImplementedError

    def inspect(self, done: Callable[[StreamState | ApiError, float], None], now: float) -> None:
        """Ask the leader for the state of the log."""
        raise NotImplementedError

    def get(self, sequence: int, done: Callable[[StoredMessage | ApiError | None, float], None], now: float) -> None:
        """Ask the leader for one message; None: there is none."""
        raise NotImplementedError

    def batch(
        self, first: int, count: int, max_bytes: int, done: Callable[[DirectBatch, float], None], now: float
    ) -> None:
        """Ask any replica for messages in order."""
        raise NotImplementedError

    def purge(self, first_kept: int, done: Callable[[int | ApiError, float], None], now: float) -> None:
        """Remove all messages before a sequence."""
        raise NotImplementedError


@final
class ObservedLog(LogIO):
    """Passes requests to a log, and notes that there was one, or an answer: something may be due since."""

    def __init__(self, inner: LogIO) -> None:
        self.has_changed = False
        self._inner = inner

    @property
    def max_message(self) -> int:
        return self._inner.max_message

    def append(self, payload: bytes, expected: int, done: Callable[[Append, float], None], now: float) -> None:
        self._inner.append(payload, expected, self._noting(done), now)

    def inspect(self, done: Callable[[StreamState | ApiError, float], None], now: float) -> None:
        self._inner.inspect(self._noting(done), now)

    def get(self, sequence: int, done: Callable[[StoredMessage | ApiError | None, float], None], now: float) -> None:
        self._inner.get(sequence, self._noting(done), now)

    def batch(
        self, first: int, count: int, max_bytes: int, done: Callable[[DirectBatch, float], None], now: float
    ) -> None:
        self._inner.batch(first, count, max_bytes, self._noting(done), now)

    def purge(self, first_kept: int, done: Callable[[int | ApiError, float], None], now: float) -> None:
        self._inner.purge(first_kept, self._noting(done), now)

    def _noting(self, done: Callable[[T, float], None]) -> Callable[[T, float], None]:
        self.has_changed = True

        def answered(answer: T, now: float) -> None:
            self.has_changed = True
            done(answer, now)

        return answered


class JetStreamLog(LogIO):
    """The log of a shard as a stream of JetStream."""

    def __init__(
        self, client: NatsClient, stream: str, subject: bytes, no_space: Callable[[str], None] = lambda stream: None
    ) -> None:
        """`no_space`: called when the server of the leader had no space for a message."""
        self._client = client
        self._no_space = no_space
        self._stream = stream
        self._subject = subject

    @property
    def max_message(self) -> int:
        info = self._client.info
        return (info.max_payload if info is not None else 1 << 20) - 4096  # headers count, too

    def append(self, payload: bytes, expected: int, done: Callable[[Append, float], None], now: float) -> None:
        def answered(answer: Answer, now: float) -> bool:
            found = read_append(answer)
            if found.error is not None and found.error.err_code == NO_SPACE:
                self._no_space(self._stream)
            done(found, now)
            return False

        self._ask(append(self._subject, payload, expected, self._stream), answered, APPEND_TIMEOUT, now)

    def inspect(self, done: Callable[[StreamState | ApiError, float], None], now: float) -> None:
        def answered(answer: Answer, now: float) -> bool:
            done(read_stream(answer), now)
            return False

        self._ask(stream_info(self._stream), answered, ASK_TIMEOUT, now)

    def get(self, sequence: int, done: Callable[[StoredMessage | ApiError | None, float], None], now: float) -> None:
        def answered(answer: Answer, now: float) -> bool:
            done(read_message(answer), now)
            return False

        self._ask(message_get(self._stream, sequence), answered, ASK_TIMEOUT, now)

    def batch(
        self, first: int, count: int, max_bytes: int, done: Callable[[DirectBatch, float], None], now: float
    ) -> None:
        batch = DirectBatch(self._stream)

        def answered(answer: Answer, now: float) -> bool:
            is_more = batch.receive(answer, now)
            if not is_more:
                done(batch, now)
            return is_more

        self._ask(direct_batch(self._stream, first, count, max_bytes), answered, BATCH_TIMEOUT, now)

    def purge(self, first_kept: int, done: Callable[[int | ApiError, float], None], now: float) -> None:
        def answered(answer: Answer, now: float) -> bool:
            done(read_purged(answer), now)
            return False

        self._ask(stream_purge(self._stream, first_kept), answered, ASK_TIMEOUT, now)

    def _ask(self, request: ApiRequest, done: Callable[[Answer, float], bool], timeout: float, now: float) -> None:
        self._client.request(request.subject, request.payload, request.headers, done, timeout, now)
