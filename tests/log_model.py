"""A log in memory that behaves as a stream of JetStream does, with the faults that a test asks for.

`ModelLog` is the stream. A `ModelLogIO` is the access of one broker: requests wait in `waiting` until the test delivers
them, loses them, or loses their answers only. The rule of the expected sequence holds, unless an append is `forced`:
that is the leak of nats-server #8469.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from dragoman.cluster.direct_batch import DirectBatch
from dragoman.cluster.jetstream import ApiError, Append, AppendOutcome, StoredMessage, StreamState
from dragoman.cluster.log import IDENTITY
from dragoman.cluster.log_io import LogIO

SECOND = 1_000_000_000


class ModelLog:
    """The messages of a stream."""

    def __init__(self, identity: str = "id", replicas: int = 3) -> None:
        self.identity = identity
        self.replicas = replicas
        self.messages: dict[int, tuple[bytes, int]] = {}  # payload and time, by sequence
        self.first = 1
        self.last = 0
        self.time = 0.0  # of the server, in seconds
        self.full = False
        self.is_gone = False  # the stream was deleted

    def append(self, payload: bytes, expected: int, *, forced: bool = False) -> Append:
        if self.is_gone:
            return Append(AppendOutcome.UNKNOWN)  # nobody listens
        if self.full:
            return Append(AppendOutcome.REFUSED, error=ApiError(503, 10077, "maximum bytes exceeded"))
        if expected != self.last and not forced:
            return Append(AppendOutcome.WRONG_SEQUENCE, self.last)
        self.last += 1
        self.messages[self.last] = (payload, int(self.time * SECOND))
        return Append(AppendOutcome.STORED, self.last)

    def get(self, sequence: int) -> StoredMessage | None:
        found = self.messages.get(sequence)
        return None if found is None else StoredMessage(sequence, "log", found[1], found[0])

    def batch(self, first: int, count: int, max_bytes: int, up_to: int) -> DirectBatch:
        """Answer as a replica that has come to the message `up_to`."""
        batch, size = DirectBatch("LOG"), 0
        for sequence in range(max(first, self.first), up_to + 1):
            message = self.get(sequence)
            if message is not None:
                batch.messages.append(message)
                size += len(message.payload)
            if len(batch.messages) >= count or size >= max_bytes:
                break
        batch.is_done = True
        return batch

    def state(self) -> StreamState | ApiError:
        if self.is_gone:
            return ApiError(404, 10059, "stream not found")
        metadata = {IDENTITY: self.identity}
        size = sum(len(payload) for payload, _ in self.messages.values())
        first = self.first if self.messages else self.last + 1
        return StreamState(
            "LOG", ("log",), self.replicas, metadata, first, self.last, len(self.messages), size, "n1", 3, True, True
        )

    def purge(self, first_kept: int) -> int:
        gone = [sequence for sequence in self.messages if sequence < first_kept]
        for sequence in gone:
            del self.messages[sequence]
        self.first = max(self.first, first_kept)
        return len(gone)


class ModelLogIO(LogIO):
    """One broker's access to the log. Without `is_held`, requests are executed and answered within the call."""

    def __init__(self, log: ModelLog, max_message: int = 1 << 20) -> None:
        self.log = log
        self.is_held = False
        self.waiting: deque[tuple[str, Callable[[float, bool], None]]] = deque()  # name; execute(now, is_answered)
        self.asked: list[str] = []
        self._max_message = max_message

    @property
    def max_message(self) -> int:
        return self._max_message

    def deliver(self, now: float, *, answered: bool = True) -> str:
        """Execute the request that has waited longest. Returns its name."""
        name, execute = self.waiting.popleft()
        execute(now, answered)
        return name

    def drop(self) -> str:
        """Lose the request that has waited longest."""
        return self.waiting.popleft()[0]

    def append(self, payload: bytes, expected: int, done: Callable[[Append, float], None], now: float) -> None:
        def execute(then: float, is_answered: bool) -> None:
            made = self.log.append(payload, expected)
            done(made if is_answered else Append(AppendOutcome.UNKNOWN), then)

        self._request("append", execute, now)

    def inspect(self, done: Callable[[StreamState | ApiError, float], None], now: float) -> None:
        def execute(then: float, is_answered: bool) -> None:
            done(self.log.state() if is_answered else ApiError(0, 0, "timed out", True), then)

        self._request("inspect", execute, now)

    def get(self, sequence: int, done: Callable[[StoredMessage | ApiError | None, float], None], now: float) -> None:
        def execute(then: float, is_answered: bool) -> None:
            done(self.log.get(sequence) if is_answered else ApiError(0, 0, "timed out", True), then)

        self._request("get", execute, now)

    def batch(
        self, first: int, count: int, max_bytes: int, done: Callable[[DirectBatch, float], None], now: float
    ) -> None:
        def execute(then: float, is_answered: bool) -> None:
            batch = self.log.batch(first, count, max_bytes, self.log.last)
            if not is_answered:
                batch.problem = "timed out"
            done(batch, then)

        self._request("batch", execute, now)

    def purge(self, first_kept: int, done: Callable[[int | ApiError, float], None], now: float) -> None:
        def execute(then: float, is_answered: bool) -> None:
            made = self.log.purge(first_kept)
            done(made if is_answered else ApiError(0, 0, "timed out", True), then)

        self._request("purge", execute, now)

    def _request(self, name: str, execute: Callable[[float, bool], None], now: float) -> None:
        self.asked.append(name)
        if self.is_held:
            self.waiting.append((name, execute))
        else:
            execute(now, True)
