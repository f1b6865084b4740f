"""A worker's side of the native dialect: many jobs at once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.infinity import inf
from dragoman.dialects.heartbeats import HeartbeatTimers
from dragoman.dialects.native.codec import (
    read_bye,
    read_error,
    read_jobs,
    read_recall,
    read_welcome,
    write_failed,
    write_hello,
    write_list,
    write_report,
    write_result,
)
from dragoman.dialects.native.messages import (
    BYE,
    DRAIN,
    ERROR,
    HEARTBEAT,
    JOB,
    RECALL,
    RETURN,
    WELCOME,
    Hello,
    Role,
)
from dragoman.dialects.native.options import WorkerOptions
from dragoman.dialects.native.waiting import BEFORE_WELCOME, NO_WELCOME
from dragoman.dialects.sides import Failure, JobInfo, Outcome, WorkerIO

WELCOME_SOON: Final = 0.02  # seconds
RESULT_BYTES: Final = 64 << 10  # of results in one RESULT, if there are several


class WorkerSide:
    """A worker's side, for as many connections as it takes. A ticket is an attempt's token.

    `finished` only notes a result, unless much has come together; `flush` sends them, many in one message.
    """

    def __init__(
        self, options: WorkerOptions, port: WorkerIO, services: Sequence[str], concurrency: int, name: str = ""
    ) -> None:
        self._port = port
        self._concurrency = concurrency
        self._hello = Hello(
            Role.WORKER, services=tuple(services), capacity=min(concurrency + options.prefetch, 1024), name=name
        )
        self._welcome = BEFORE_WELCOME
        self._is_open = False
        self._is_leaving = False
        self._running: set[bytes] = set()
        self._at_hand: dict[bytes, tuple[Frame, JobInfo]] = {}  # prefetched, and not begun
        self._done: list[bytes] = []  # whose results were noted
        self._results: list[Frame] = []
        self._result_bytes = 0
        self._result_limit = 0
        self._signs = HeartbeatTimers(BEFORE_WELCOME.heartbeat, BEFORE_WELCOME.lease)

    @property
    def is_busy(self) -> bool:
        """Also until the broker has said BYE: what it gave us before it heard DRAIN is ours to give back."""
        return bool(self._running) or bool(self._done) or (self._is_leaving and self._is_open)

    def opened(self, now: float) -> None:
        self._is_open = True
        self._welcome = BEFORE_WELCOME  # another broker may be there by now
        self._signs.agree(BEFORE_WELCOME.heartbeat, BEFORE_WELCOME.lease)
        self._signs.begin(now)
        self._port.send(write_hello(self._hello))
        if self._is_leaving:
            self._port.send([bytes((DRAIN,))])

    def lost(self) -> None:
        """Give up what runs: it belongs to the connection, and its attempts have ended with it."""
        self._is_open = False
        self._at_hand.clear()
        self._forget_results()
        running, self._running = self._running, set()
        for token in sorted(running):
            self._port.recall(token, "the connection to the broker ended")

    def receive(self, message: Message | TooLarge, now: float) -> None:
        self._signs.heard = now
        try:
            if isinstance(message, TooLarge):
                raise Malformed("too large", f"a message of {message.size} bytes is over what we take")
            self._receive(message, now)
        except Malformed as problem:
            self._port.reconnect(f"{problem.reason}: {problem.detail}")

    def finished(self, job_ref: Hashable, result: Frame, now: float) -> None:
        token = self._end(job_ref)
        if token is not None:
            size = len(result)
            if self._result_bytes + size > self._result_limit:
                self.flush(now)
            self._done.append(token)
            self._results.append(result)
            self._result_bytes += size
            self._begin_next()

    def failed(
        self,
        job_ref: Hashable,
        reason: str,
        now: float,
        failure: Failure | None = None,
        outcome: Outcome = Outcome.FAILED,
    ) -> None:
        token = self._end(job_ref)
        if token is not None:
            told = failure or Failure("", reason)
            self._say(write_failed(outcome, token, told.type, told.message, told.traceback), now)
            self._begin_next()

    def returned(self, job_ref: Hashable, now: float) -> None:
        """It has stopped after RECALL."""
        token = self._end(job_ref)
        if token is not None:
            self._say(write_list(RETURN, [token]), now)
            self._begin_next()

    def report(self, job_ref: Hashable, payload: Frame, now: float, *, is_part: bool) -> str | None:
        assert isinstance(job_ref, bytes)
        if len(payload) > self._welcome.max_payload:
            return f"{len(payload)} bytes are over the broker's max_payload {self._welcome.max_payload}"
        if job_ref in self._running:
            self._say(write_report(job_ref, payload, is_part=is_part), now)
        return None

    def flush(self, now: float) -> None:
        if self._done:
            frames = write_result(self._done, self._results)
            self._forget_results()
            self._say(frames, now)

    def stop(self) -> None:
        self._is_leaving = True
        if self._is_open:
            self._port.send([bytes((DRAIN,))])
            at_hand, self._at_hand = list(self._at_hand), {}
            if at_hand:
                self._port.send(write_list(RETURN, at_hand))

    def tick(self, now: float) -> float:
        if not self._is_open:
            return inf
        signs = self._signs
        if signs.is_silent(now):
            self._port.reconnect(NO_WELCOME if self._welcome is BEFORE_WELCOME else signs.silence)
            return inf
        if signs.is_due(now):
            self._say([bytes((HEARTBEAT,))], now)
        if self._welcome is BEFORE_WELCOME:  # how often we must speak will be known in a moment
            return now + WELCOME_SOON
        return signs.next_due()

    def _receive(self, message: Message, now: float) -> None:
        head = message[0]
        word = head[0] if head else 0
        if word == JOB:
            self._take(message, now)
        elif word == RECALL:
            self._recall(*read_recall(message), now)
        elif word == WELCOME:
            self._welcome = read_welcome(message)
            self._signs.agree(self._welcome.heartbeat, self._welcome.lease)
            self._result_limit = min(RESULT_BYTES, self._welcome.max_payload)
        elif word == BYE:
            self._bye(*read_bye(message))
        elif word == ERROR:
            _, code, sentence = read_error(message)
            raise Malformed(code, f"the broker says: {sentence}")
        elif word != HEARTBEAT and self._welcome is BEFORE_WELCOME:
            raise Malformed("unknown word", f"{word:02x} came before WELCOME")

    def _take(self, message: Message, now: float) -> None:
        for index, job in enumerate(read_jobs(message), 2):
            if self._is_leaving or len(self._running) + len(self._at_hand) >= self._hello.capacity:
                self._say(write_list(RETURN, [job.token]), now)
                continue
            assignment = JobInfo(job.service, job.id.hex(), job.attempt, job.timeout or inf)
            if len(self._running) < self._concurrency:
                self._running.add(job.token)
                self._port.run(job.token, message[index], assignment)
            else:
                self._at_hand[job.token] = (message[index], assignment)

    def _recall(self, token: bytes, reason: str, now: float) -> None:
        if self._at_hand.pop(token, None) is not None:
            self._say(write_list(RETURN, [token]), now)
        elif token in self._running:
            self._port.recall(token, reason)

    def _bye(self, is_final: bool, sentence: str) -> None:
        if is_final or self._is_leaving:
            self.lost()  # what we still work at ends here, too
            self._port.leave(sentence)
        else:
            self._port.reconnect(f"the broker said goodbye: {sentence}")

    def _end(self, job_ref: Hashable) -> bytes | None:
        """Its token, if its attempt has not ended with an earlier connection."""
        assert isinstance(job_ref, bytes)
        if job_ref not in self._running:
            return None
        self._running.remove(job_ref)
        return job_ref

    def _forget_results(self) -> None:
        self._done, self._results, self._result_bytes = [], [], 0

    def _begin_next(self) -> None:
        if self._at_hand and len(self._running) < self._concurrency:
            token = next(iter(self._at_hand))
            payload, assignment = self._at_hand.pop(token)
            self._running.add(token)
            self._port.run(token, payload, assignment)

    def _say(self, frames: Sequence[Frame], now: float) -> None:
        self._signs.said = now
        self._port.send(frames)
