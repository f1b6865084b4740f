"""The other sides of the conversations: a worker's and a client's, as whoever runs them sees it.

Each dialect's `peer.py` has one of each: pure, like its session. They say what they want done through a port, they are
told what came of it, and a `ticket` is what a job is called meanwhile.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.failure import Failure as Failure
from dragoman.core.infinity import inf
from dragoman.core.states import Outcome as Outcome


@dataclass(frozen=True, slots=True)
class JobInfo:
    """What a worker is told of a job besides its payload, as far as its wire says."""

    service: str = ""
    job_id: str = ""  # 32 hex digits
    attempt: int = 1
    timeout: float = inf  # seconds that it may run


NOTHING_SAID: Final = JobInfo()


class WorkerIO(Protocol):
    """What a worker's conversation asks for."""

    def send(self, frames: Sequence[Frame]) -> None: ...

    def run(self, job_ref: Hashable, payload: Frame, assignment: JobInfo = NOTHING_SAID) -> None:
        """Start the job. `finished`, `failed` or `returned` follows with the same ticket."""

    def recall(self, job_ref: Hashable, reason: str) -> None:
        """Nobody waits for this job any more: stop it if that can be done. What follows is as if it had not been."""

    def reconnect(self, reason: str) -> None:
        """Close, open a new connection, and say `opened` again."""

    def leave(self, reason: str) -> None:
        """The broker wants us gone: stop for good."""


class WorkerSide(Protocol):
    """A worker's side, for as many connections as it takes."""

    @property
    def is_busy(self) -> bool:
        """Whether it has a job in hand, or a last word to say, that a stop should wait for."""

    def opened(self, now: float) -> None: ...

    def lost(self) -> None: ...

    def receive(self, message: Message | TooLarge, now: float) -> None: ...

    def finished(self, job_ref: Hashable, result: Frame, now: float) -> None: ...

    def failed(
        self,
        job_ref: Hashable,
        reason: str,
        now: float,
        failure: Failure | None = None,
        outcome: Outcome = Outcome.FAILED,
    ) -> None:
        """`reason` is a sentence for wires that have room for no more. `outcome` is LOST if the process that ran the
        job died."""

    def stop(self) -> None:
        """Take no more jobs, and say goodbye as far as the wire has a word for it."""

    def tick(self, now: float) -> float:
        """Do what is due, and say when to come again."""


@dataclass(frozen=True, slots=True, eq=False)
class SubmitOptions:
    """What a caller asks for besides the result. Most wires have no words for most of it; `None` is not said, and a
    time-out of inf is none.

    Callers make one and use it for many jobs: which one it is tells what it says.
    """

    service: str
    timeout: float | None = None  # the caller's patience over everything
    job_timeout: float | None = None  # how long one attempt may run
    queue_timeout: float | None = None  # how long it may wait for a worker
    priority: int | None = None
    attempts: int | None = None
    waits: bool = False  # for a worker, even if none offers the service
    is_whole: bool = False  # the parts of the result are wanted in front of it, and not as they come


class ReportingSide(WorkerSide, Protocol):
    """A worker's side on a wire that has words for more: whose port is asked to `recall`."""

    def returned(self, job_ref: Hashable, now: float) -> None:
        """It was recalled, and has stopped."""

    def report(self, job_ref: Hashable, payload: Frame, now: float, *, is_part: bool) -> str | None:
        """What the job says of itself while it runs, or a part of its result. Returns why it cannot be said, if so."""

    def flush(self, now: float) -> None:
        """Say what was noted: to be called once in a turn of the loop in which something was finished."""


def answer_too_large(answer: TooLarge) -> Malformed:
    return Malformed("too large", f"the answer has {answer.size} bytes, more than this client takes")


class ClientIO(Protocol):
    """What a client's conversation asks for."""

    def send(self, frames: Sequence[Frame]) -> None: ...

    def answered(self, job_ref: Hashable, result: Frame) -> None:
        """The job is done."""

    def ended(
        self,
        job_ref: Hashable,
        outcome: Outcome | None,
        reason: str,
        failure: Failure | None = None,
        refusal: str = "",
    ) -> None:
        """The job ended without a result; `outcome` is None if the broker named none that is known here. `refusal` is
        the kind of a refusal, as far as the wire tells."""

    def abandoned(self, job_ref: Hashable, reason: str) -> None:
        """The outcome cannot be known any more: the broker that had the job is gone."""

    def reported(self, job_ref: Hashable, payload: Frame, is_part: bool, attempt: int) -> None:
        """What a running job says of itself, or a part of its result."""

    def told(self, job_ref: Hashable, view: bytes, payload: Frame) -> None:
        """The answer to a question: JSON, and what is no JSON."""

    def operation_failed(self, job_ref: Hashable, kind: str, detail: str) -> None:
        """Why there is none: a word for programs, a sentence for people."""

    def reconnect(self, reason: str) -> None:
        """Close, open a new connection, and say `opened` again."""


class ClientSide(Protocol):
    """A client's side. Who inherits from this says nothing where its wire has no word."""

    patience: float  # how long to wait for an answer if the caller has not said
    hint: str  # what else there is to say about an answer that did not come

    @property
    def outlives_connections(self) -> bool:
        """Whether what is under way goes on when the connection is replaced by another."""
        return False

    @property
    def is_ready(self) -> bool:
        """Whether calls may be made now: the connection is there, and so is what the broker says first."""
        return True

    def opened(self, now: float) -> None:
        """A connection is there: calls under way are asked for again."""

    def lost(self) -> None:
        """It is gone."""

    def call(self, job_ref: Hashable, service: str, payload: Frame, timeout: float | None, now: float) -> None: ...

    def receive(self, message: Message | TooLarge, now: float) -> None:
        """Raises Malformed if it cannot be understood."""

    def tick(self, now: float) -> float: ...

    def submit(self, job_ref: Hashable, submit_options: SubmitOptions, payload: Frame, id: bytes, now: float) -> None:
        """Call, with all that the wire has words for. What is submitted may wait for `flush`."""
        timeout = submit_options.timeout if submit_options.job_timeout is None else submit_options.job_timeout
        self.call(job_ref, submit_options.service, payload, timeout, now)

    def ask(self, job_ref: Hashable, question: str, form: bytes, payload: Frame, id: bytes, now: float) -> None:
        """Ask the broker something; it is asked again on every new connection until there is an answer."""
        raise AssertionError("this wire has no word for it")

    def flush(self, now: float) -> None:
        """Send what was submitted and may be sent."""
        return

    def is_sent(self, id: bytes) -> bool:
        """Whether the broker may have it. Asked from other threads, too."""
        return True

    def cancel(self, id: bytes, now: float) -> None:
        """Ask the broker to end it; its outcome comes in any case."""
        return

    def forget(self, job_ref: Hashable, id: bytes, now: float) -> None:
        """Nobody waits for it any more: no answer, please."""
        return

    def bye(self) -> None:
        """We leave for good."""
        return
