"""The worker's side of the native dialect: many jobs at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.failure import decision_text, final_failure
from dragoman.core.infinity import inf
from dragoman.core.limit_values import LimitValues
from dragoman.core.oversize import over_max_payload
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
from dragoman.dialects.native.job_extras import PARTS
from dragoman.dialects.native.messages import (
    BYE,
    DRAIN,
    ERROR,
    HEARTBEAT,
    JOB,
    MOST_TEXT,
    MOVE,
    RECALL,
    RETURN,
    WELCOME,
    Hello,
    Role,
)
from dragoman.dialects.native.options import WorkerOptions
from dragoman.dialects.native.waiting import BEFORE_WELCOME, NO_WELCOME
from dragoman.dialects.sides import FORBIDDEN, MAX_PAYLOAD, Failure, JobInfo, Outcome, WorkerIO

WITHOUT_LIMITS: Final = "it is of an earlier release and does not know limits of services, as declared for"
WITHOUT_PARTS: Final = "it is of an earlier release and does not tell which callers receive parts, as required by"
WELCOME_SOON: Final = 0.02  # seconds
RESULT_BYTES: Final = 64 << 10  # of results in one RESULT, if there are several
MOVE_SOON: Final = 0.02  # seconds between two looks whether a job with parts has ended


class WorkerSide:
    """The worker's side, across any number of connections. A `job_ref` is an attempt's token.

    `finished` only stores a result, unless many bytes have collected; `flush` sends them, several in one message.
    """

    def __init__(
        self, options: WorkerOptions, io: WorkerIO, services: Sequence[str], concurrency: int, name: str = ""
    ) -> None:
        self.max_payload = MAX_PAYLOAD  # bytes of a result, as the last WELCOME told
        self._io = io
        self._concurrency = concurrency
        self._hello = Hello(
            Role.WORKER,
            services=tuple(services),
            capacity=min(concurrency + options.prefetch, 1024),
            name=name,
            retries=True,
            extras=True,
        )
        self._welcome = BEFORE_WELCOME
        self._is_open = False
        self._is_leaving = False
        self._is_moving = False  # to another broker, as soon as no running job has sent parts
        self._go: Callable[[str], None] | None = None  # to another broker
        self._running: dict[bytes, str] = {}  # tokens of running jobs, with their services
        self._prefetched: dict[bytes, tuple[Frame, JobInfo]] = {}  # prefetched, not started
        self._done: list[bytes] = []  # tokens of stored results
        self._results: list[Frame] = []
        self._result_bytes = 0
        self._result_limit = 0
        self._timers = HeartbeatTimers(BEFORE_WELCOME.heartbeat, BEFORE_WELCOME.lease)
        self._kept: dict[bytes, str] = {}  # tokens of running jobs of lost connections, with their services
        self._undelivered: list[tuple[bytes, Frame, Failure | None, Outcome]] = []  # outcomes for the next broker
        self._brought: dict[bytes, str] = {}  # tokens of these outcomes, with their services if they are known
        self._with_parts: set[bytes] = set()  # tokens of running jobs that have sent parts, if jobs are kept

    def keep_jobs(self, go: Callable[[str], None] | None = None) -> None:
        self._hello = replace(self._hello, returns=True, moves=go is not None)
        self._go = go

    def declare_limits(self, limits: Mapping[str, LimitValues]) -> None:
        self._hello = replace(self._hello, limits=limits)

    def declare_parameters(self, parameters: Mapping[str, dict[str, Any]]) -> None:
        self._hello = replace(self._hello, parameters=parameters)

    def require_parts(self, services: Sequence[str]) -> None:
        """Announce services whose callers must take parts. Call it before the first connection."""
        self._hello = replace(self._hello, parts=tuple(services))

    @property
    def is_busy(self) -> bool:
        """Also True until the broker has sent BYE: jobs that it sent before it received DRAIN must be returned."""
        if self._running or self._done or self._kept or self._undelivered:
            return True
        return self._is_leaving and self._is_open

    def opened(self, now: float) -> None:
        self._is_open = True
        self._welcome = BEFORE_WELCOME  # it may be another broker
        self._timers.set_times(BEFORE_WELCOME.heartbeat, BEFORE_WELCOME.lease)
        self._timers.restart(now)
        self._is_moving = False
        self._io.send(self._written_hello())
        if self._is_leaving:
            self._io.send([bytes((DRAIN,))])

    def _written_hello(self) -> list[Frame]:
        """Return HELLO with the jobs of earlier connections, as far as there is room for them."""
        tokens = dict([*self._brought.items(), *self._kept.items()][: self._hello.capacity])
        if tokens:
            running = {service: tuple(t for t, of in tokens.items() if of == service) for service in tokens.values()}
            frames = write_hello(replace(self._hello, running=running))
            if len(frames[1]) <= MOST_TEXT:
                return frames
        return write_hello(self._hello)

    def lost(self) -> None:
        """Cancel running jobs, because their attempts have ended with the connection; or keep them for the next broker.
        It cannot join their results with parts that were sent to this one."""
        kept = {token: of for token, of in self._running.items() if token not in self._with_parts}
        if not self._hello.returns:
            kept = {}
        if self._hello.returns:
            self._undelivered += [
                (token, result, None, Outcome.DONE) for token, result in zip(self._done, self._results, strict=True)
            ]
        self._lose_connection([token for token in self._running if token not in kept])
        self._kept |= kept

    def _lose_connection(self, cancelled: Sequence[bytes]) -> None:
        self._is_open = False
        self._welcome = BEFORE_WELCOME
        self._prefetched.clear()
        self._forget_results()
        self._running = {}
        self._with_parts.clear()
        for token in sorted(cancelled):
            self._io.recall(token, "the connection to the broker ended")

    def receive(self, message: Message | TooLarge, now: float) -> None:
        self._timers.received_at = now
        try:
            if isinstance(message, TooLarge):
                raise Malformed("too large", f"a message of {message.size} bytes is over this worker's limit")
            self._receive(message, now)
        except Malformed as problem:
            if problem.reason == FORBIDDEN:
                self._io.refused(problem.detail)
            else:
                self._io.reconnect(f"{problem.reason}: {problem.detail}")

    def finished(self, job_ref: Hashable, result: Frame, now: float) -> None:
        token = self._end(job_ref)
        if token is not None:
            size = len(result)
            if self._result_bytes + size > self._result_limit:
                self.flush(now)
                if size > self.max_payload:
                    reason = over_max_payload("its result", size, self.max_payload)
                    self._send_failure(token, Failure("", reason), Outcome.FAILED, now)
                    self._start_next()
                    return
            self._done.append(token)
            self._results.append(result)
            self._result_bytes += size
            self._start_next()
        elif job_ref in self._kept:
            self._deliver((job_ref, result, None, Outcome.DONE), now)

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
            self._send_failure(token, failure or Failure("", reason), outcome, now)
            self._start_next()
        elif job_ref in self._kept:
            self._deliver((job_ref, b"", failure or Failure("", reason), outcome), now)

    def _send_failure(self, token: bytes, report: Failure, outcome: Outcome, now: float) -> None:
        if report.unknown and not self._welcome.parameters:
            report = final_failure(report)
        decision = decision_text(report) if self._welcome.retries else ""
        self._send(write_failed(outcome, token, report.type, report.message, report.traceback, decision), now)

    def returned(self, job_ref: Hashable, now: float) -> None:
        """Report that a job has stopped after RECALL."""
        token = self._end(job_ref)
        if token is not None:
            self._send(write_list(RETURN, [token]), now)
            self._start_next()
        elif isinstance(job_ref, bytes) and self._kept.pop(job_ref, None) is not None:
            self._start_next()

    def report(self, job_ref: Hashable, payload: Frame, now: float, *, is_part: bool) -> str | None:
        assert isinstance(job_ref, bytes)
        if is_part and job_ref in self._kept:
            return "the connection to the broker ended"
        if job_ref in self._running:
            if len(payload) > self._welcome.max_payload:
                return f"{len(payload)} bytes are over the broker's max_payload {self._welcome.max_payload}"
            if is_part and self._hello.returns:
                self._with_parts.add(job_ref)
            self._send(write_report(job_ref, payload, is_part=is_part), now)
        return None

    def flush(self, now: float) -> None:
        if self._done:
            frames = write_result(self._done, self._results)
            self._forget_results()
            self._send(frames, now)

    def stop(self) -> None:
        self._is_leaving = True
        self._cancel_kept()
        if self._is_open:
            self._io.send([bytes((DRAIN,))])
            prefetched, self._prefetched = list(self._prefetched), {}
            if prefetched:
                self._io.send(write_list(RETURN, prefetched))

    def tick(self, now: float) -> float:
        if not self._is_open:
            return inf
        timers = self._timers
        if timers.is_silent(now):
            self._io.reconnect(NO_WELCOME if self._welcome is BEFORE_WELCOME else timers.silence)
            return inf
        if self._is_moving:
            self._move(now)
            return now + MOVE_SOON
        if timers.is_due(now):
            self._send([bytes((HEARTBEAT,))], now)
        if self._welcome is BEFORE_WELCOME:  # the interval of heartbeats will be known in a moment
            return now + WELCOME_SOON
        return timers.next_due()

    def _receive(self, message: Message, now: float) -> None:
        head = message[0]
        kind = head[0] if head else 0
        if kind == JOB:
            self._take(message, now)
        elif kind == RECALL:
            self._recall(*read_recall(message), now)
        elif kind == WELCOME:
            self._welcome = read_welcome(message)
            self._timers.set_times(self._welcome.heartbeat, self._welcome.lease)
            self.max_payload = self._welcome.max_payload
            self._result_limit = min(RESULT_BYTES, self.max_payload)
            if self._hello.parts and PARTS not in self._welcome.extras:
                self._io.refused(f"{WITHOUT_PARTS} {self._hello.parts[0]!r}")
            elif self._hello.limits and not self._welcome.limits:
                self._io.refused(f"{WITHOUT_LIMITS} {next(iter(self._hello.limits))!r}")
            else:
                for token in self._welcome.running:
                    if token in self._kept:
                        self._running[token] = self._kept.pop(token)
                self._send_undelivered(now)
        elif kind == MOVE:
            self._is_moving = self._go is not None
            self._move(now)
        elif kind == BYE:
            self._bye(*read_bye(message))
        elif kind == ERROR:
            _, code, sentence = read_error(message)
            raise Malformed(code, f"the broker sent an error: {sentence}")
        elif kind != HEARTBEAT and self._welcome is BEFORE_WELCOME:
            raise Malformed("unknown word", f"{kind:02x} came before WELCOME")

    def _take(self, message: Message, now: float) -> None:
        for index, job in enumerate(read_jobs(message), 2):
            if self._is_leaving or len(self._running) + len(self._prefetched) >= self._hello.capacity:
                self._send(write_list(RETURN, [job.token]), now)
                continue
            assignment = JobInfo(
                job.service,
                job.id.hex(),
                job.attempt,
                job.timeout or inf,
                job.traceparent,
                job.waited,
                job.takes_parts,
            )
            if len(self._running) + len(self._kept) < self._concurrency:
                self._running[job.token] = job.service
                self._io.run(job.token, message[index], assignment)
            else:
                self._prefetched[job.token] = (message[index], assignment)

    def _recall(self, token: bytes, reason: str, now: float) -> None:
        if self._prefetched.pop(token, None) is not None:
            self._send(write_list(RETURN, [token]), now)
        elif token in self._running or token in self._kept:
            self._io.recall(token, reason)

    def _move(self, now: float) -> None:
        """Go to another broker with the running jobs. One that has sent parts of its result must end first."""
        if self._go is None or not self._is_moving or self._with_parts:
            return
        self._is_moving = False
        self.flush(now)
        if self._prefetched:
            self._send(write_list(RETURN, list(self._prefetched)), now)
        self.lost()
        self._go("the broker stops")

    def _bye(self, is_final: bool, sentence: str) -> None:
        if is_final or self._is_leaving:
            self._cancel_kept()
            self._lose_connection(list(self._running))
            self._io.leave(sentence)
        else:
            self._io.reconnect(f"the broker sent BYE: {sentence}")

    def _end(self, job_ref: Hashable) -> bytes | None:
        """Remove a running job. Returns its token, or None if its attempt ended with an earlier connection."""
        assert isinstance(job_ref, bytes)
        if job_ref not in self._running:
            return None
        del self._running[job_ref]
        self._with_parts.discard(job_ref)
        return job_ref

    def _cancel_kept(self) -> None:
        kept, self._kept = self._kept, {}
        for token in sorted(kept):
            self._io.recall(token, "its broker is gone")

    def _deliver(self, undelivered: tuple[bytes, Frame, Failure | None, Outcome], now: float) -> None:
        """Send the outcome of a job of a lost connection: the broker may know it, or drops it."""
        token = undelivered[0]
        self._brought[token] = self._kept.pop(token)
        self._undelivered.append(undelivered)
        if self._welcome is not BEFORE_WELCOME:
            self._send_undelivered(now)
        self._start_next()

    def _send_undelivered(self, now: float) -> None:
        undelivered, self._undelivered = self._undelivered, []
        self._brought.clear()
        for token, result, failure, outcome in undelivered:
            if failure is None:
                self._send(write_result([token], [result]), now)
            else:
                self._send_failure(token, failure, outcome, now)

    def _forget_results(self) -> None:
        self._done, self._results, self._result_bytes = [], [], 0

    def _start_next(self) -> None:
        if self._prefetched and len(self._running) + len(self._kept) < self._concurrency:
            token = next(iter(self._prefetched))
            payload, assignment = self._prefetched.pop(token)
            self._running[token] = assignment.service
            self._io.run(token, payload, assignment)

    def _send(self, frames: Sequence[Frame], now: float) -> None:
        self._timers.sent_at = now
        self._io.send(frames)
