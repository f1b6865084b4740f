"""Interfaces of a dialect's worker side and client side, and of the I/O that they use.

Each dialect's `peer.py` has both sides: state machines without I/O. They request I/O through `WorkerIO` or `ClientIO`
and receive its results as calls. A `job_ref` identifies a job in these calls.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.failure import Failure as Failure
from dragoman.core.ids import JobId as JobId
from dragoman.core.infinity import inf
from dragoman.core.job_extras import JobExtras as JobExtras
from dragoman.core.states import Outcome as Outcome

if TYPE_CHECKING:
    from dragoman.core.limit_values import LimitValues


@dataclass(frozen=True, slots=True)
class JobInfo:
    """Facts about a job besides its payload, as far as the wire has them."""

    service: str = ""
    job_id: str = ""  # 32 hex digits
    attempt: int = 1
    timeout: float = inf  # seconds that it may run
    traceparent: str = ""  # W3C trace context of its submit
    waited: float | None = None  # seconds in the queue before this attempt, if the job has a traceparent
    takes_parts: bool = True  # False: its caller gets the parts of the result joined, and the service forbids that


NOTHING_SAID: Final = JobInfo()
MAX_PAYLOAD: Final = 1 << 30  # bytes: the most that a broker may be told to accept, where the wire does not tell more
FORBIDDEN: Final = "forbidden"  # refusal of a request whose sender lacks a right
UNAUTHENTICATED: Final = "unauthenticated"  # refusal of a request whose sender is unknown
NOT_ADMITTED: Final = ("another user", "forwarded", "foreign host")  # refusals of all requests of a client


class WorkerIO(Protocol):
    """I/O operations of a worker side."""

    def send(self, frames: Sequence[Frame]) -> None: ...

    def run(self, job_ref: Hashable, payload: Frame, assignment: JobInfo = NOTHING_SAID) -> None:
        """Start the job. `finished`, `failed` or `returned` follows with the same `job_ref`."""

    def recall(self, job_ref: Hashable, reason: str) -> None:
        """Stop this cancelled job if possible. The next call is the same as without `recall`."""

    def reconnect(self, reason: str) -> None:
        """Close, open a new connection, and call `opened` again."""

    def leave(self, reason: str) -> None:
        """Stop for good, because the broker requested it."""

    def refused(self, reason: str) -> None:
        """Stop for good, because the broker does not allow this worker."""


class WorkerSide(Protocol):
    """The worker's side, across any number of connections."""

    @property
    def is_busy(self) -> bool:
        """Tell if it has a running job or an unsent message that a stop should wait for."""

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
        """`reason` is a sentence, for wires that carry only that. `outcome` is LOST if the process that ran the job
        died."""

    def stop(self) -> None:
        """Accept no more jobs, and announce the departure if the wire has a message for it."""

    def tick(self, now: float) -> float:
        """Do what is due. Returns the time of the next call."""


@dataclass(frozen=True, slots=True, eq=False)
class SubmitOptions:
    """Options of a submitted job. Most wires cannot express most of them; None means not set, and a time-out of inf
    means no limit.

    Compared by identity: callers create one object and use it for many jobs.
    """

    service: str
    timeout: float | None = None  # total wait of the caller, in seconds
    job_timeout: float | None = None  # maximum duration of one attempt, in seconds
    queue_timeout: float | None = None  # maximum wait for a worker, in seconds
    priority: int | None = None
    attempts: int | None = None
    waits: bool = False  # wait for a worker even if none offers the service
    is_whole: bool = False  # deliver parts together with the result, not as they arrive
    tenant: str = ""


class ReportingSide(WorkerSide, Protocol):
    """A worker's side on a wire that supports cancelling and reports: its I/O has `recall`."""

    max_payload: int  # bytes of a result that the broker accepts, as it has told

    def returned(self, job_ref: Hashable, now: float) -> None:
        """Report that the cancelled job has stopped."""

    def report(self, job_ref: Hashable, payload: Frame, now: float, *, is_part: bool) -> str | None:
        """Send progress or a part of the result. Returns an error message if that is impossible, else None."""

    def flush(self, now: float) -> None:
        """Send collected messages. Call it once per iteration in which a job ended."""


class PartsKnowingSide(ReportingSide, Protocol):
    """A worker's side on a wire that tells whether the caller of a job takes parts."""

    def require_parts(self, services: Sequence[str]) -> None:
        """Announce services whose callers must take parts. Call it before the first connection."""


class KeepingSide(WorkerSide, Protocol):
    """A worker's side on a wire that carries the outcomes of jobs of an earlier connection."""

    def keep_jobs(self, go: Callable[[str], None] | None = None) -> None:
        """Continue jobs whose connection is lost, and send their outcomes on the next one (R107). `go`: called after
        the last message, with the reason, when the broker wants the worker to go to another one (R119). Call it before
        the first connection."""


class LimitingSide(WorkerSide, Protocol):
    """A worker's side on a wire that carries limits of services."""

    def declare_limits(self, limits: Mapping[str, LimitValues]) -> None:
        """Announce limits of services. Call it before the first connection."""


class DeclaringSide(WorkerSide, Protocol):
    """A worker's side on a wire that carries the parameters of services."""

    def declare_parameters(self, parameters: Mapping[str, dict[str, Any]]) -> None:
        """Announce the parameters of services, as JSON Schema objects. Call it before the first connection."""


def response_too_large(answer: TooLarge) -> Malformed:
    return Malformed("too large", f"the response has {answer.size} bytes, over this client's limit")


class ClientIO(Protocol):
    """I/O operations of a client side, and the results it delivers."""

    def send(self, frames: Sequence[Frame]) -> None: ...

    def answered(self, job_ref: Hashable, result: Frame) -> None:
        """Deliver the result of a job."""

    def ended(
        self,
        job_ref: Hashable,
        outcome: Outcome | None,
        reason: str,
        failure: Failure | None = None,
        refusal: str = "",
    ) -> None:
        """End a job without a result. `outcome` is None if the broker sent no known one. `refusal` is the kind of a
        refusal, if the wire has it."""

    def abandoned(self, job_ref: Hashable, reason: str) -> None:
        """End a job whose outcome cannot be known, because the broker that had it is gone."""

    def reported(self, job_ref: Hashable, payload: Frame, is_part: bool, attempt: int) -> None:
        """Deliver progress of a running job, or a part of its result."""

    def told(self, job_ref: Hashable, view: bytes, payload: Frame) -> None:
        """Deliver the response to an operation: JSON, and bytes that are not JSON."""

    def operation_failed(self, job_ref: Hashable, kind: str, detail: str) -> None:
        """Deliver the error of an operation: a kind for programs and a message for people."""

    def reconnect(self, reason: str) -> None:
        """Close, open a new connection, and call `opened` again."""


class ClientSide(Protocol):
    """A client's side. The default methods do nothing, for wires that have no message for them."""

    patience: float  # seconds to wait for a response if the caller sets no time-out
    hint: str  # addition to the error about a missing response

    @property
    def outlives_connections(self) -> bool:
        """Tell if calls in progress continue on the next connection."""
        return False

    @property
    def is_ready(self) -> bool:
        """Tell if calls may be made now: connected, and the broker's first message has come."""
        return True

    def opened(self, now: float) -> None:
        """Use a new connection: send calls in progress again."""

    def lost(self) -> None:
        """Handle the end of the connection."""

    def moved(self) -> None:
        """Prepare for a connection to another broker, which does not know the calls in progress. Abandon those that a
        new connection would submit a second time. Called while there is no connection."""
        return

    def call(self, job_ref: Hashable, service: str, payload: Frame, timeout: float | None, now: float) -> None: ...

    def receive(self, message: Message | TooLarge, now: float) -> None:
        """Handle a message. Raises Malformed if it cannot be parsed."""

    def tick(self, now: float) -> float: ...

    def submit(
        self,
        job_ref: Hashable,
        submit_options: SubmitOptions,
        payload: Frame,
        id: bytes,
        now: float,
        extras: JobExtras | None = None,
    ) -> None:
        """Make a call with all options and extras that the wire supports. It may be sent as late as `flush`."""
        timeout = submit_options.timeout if submit_options.job_timeout is None else submit_options.job_timeout
        self.call(job_ref, submit_options.service, payload, timeout, now)

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
        """Send an operation. It is sent again on every new connection until the response has come. `number`: returns
        the field `request_id` of each copy."""
        raise AssertionError("this dialect has no operations")

    def flush(self, now: float) -> None:
        """Send submitted jobs."""
        return

    def is_sent(self, id: bytes) -> bool:
        """Tell if the broker may have received the job. Called from other threads, too."""
        return True

    def cancel(self, id: bytes, now: float) -> None:
        """Ask the broker to end the job; its outcome is delivered in any case."""
        return

    def forget(self, job_ref: Hashable, id: bytes, now: float) -> None:
        """Drop a job: its caller does not wait any more, and no outcome is delivered."""
        return

    def bye(self) -> None:
        """Leave for good."""
        return
