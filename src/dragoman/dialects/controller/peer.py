"""The worker side of Worker-Controller, for any controller. There are no clients. A state machine without I/O.

A worker has no permanent connection. A pulse is an exchange that it starts on the controller's socket, one after
another; a control message is an exchange that it receives on a socket named by its id. `ControllerIO` runs each
exchange on a connection of its own.

**States.** The reply to REGISTER has an id. Then the worker listens, and sends pulses: OK, or FETCH_ME while a task's
outcome is ready. It keeps the task until its outcome has been fetched, and accepts no other meanwhile. After UNKNOWN_ID
it starts again with REGISTER. A running task cannot be stopped then: until it ends the worker is BUSY, and its outcome
is dropped.

**Leaving.** After RESTART the worker leaves at once. `stop` waits for the task, and some seconds until its outcome is
fetched. In both cases SHUTDOWN is the last message.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, Protocol

from dragoman.carriers.carrier import Frame
from dragoman.carriers.malformed import Malformed
from dragoman.core.infinity import inf
from dragoman.dialects.controller.codec import read_control, read_pulse_response, write_pulse, write_response
from dragoman.dialects.controller.editions import EDITIONS
from dragoman.dialects.controller.messages import ControlKind, ControllerError, PulseKind, WorkerError
from dragoman.dialects.controller.options import WorkerOptions

FETCH_WAIT: Final = 10.0  # seconds to wait after `stop` until an outcome is fetched
SHUTDOWN_WAIT: Final = 2.0  # seconds to wait after that for the reply to SHUTDOWN


class ControllerIO(Protocol):
    """I/O operations of a worker side."""

    def pulse(self, head: bytes) -> None:
        """Send a pulse to the controller. `answered` or `unanswered` follows."""

    def listen(self, worker_id: int) -> str | None:
        """Listen for control messages by this id. Returns an error message if that is impossible."""

    def stop_listening(self) -> None: ...

    def run(self, job_ref: Hashable, payload: Frame) -> None:
        """Start the job. `finished` or `failed` follows with the same `job_ref`."""

    def log_limited(self, problem: str) -> None: ...


class BackOff(Protocol):
    """Delays between tries: longer each time, until one succeeds."""

    def next(self) -> float: ...

    def reset(self) -> None: ...


class Task:
    """A task: running, or ended with a result or a failure to be fetched."""

    __slots__ = ("failure", "id", "result")

    def __init__(self, id: int) -> None:
        self.id = id
        self.result: Frame | None = None
        self.failure: str | None = None

    @property
    def is_over(self) -> bool:
        return self.result is not None or self.failure is not None


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to a control message: its `frames`, and the task whose outcome it has."""

    frames: Sequence[Frame]
    task: Task | None = None
    is_last: bool = False  # the response to RESTART


class WorkerSide:
    """The worker's side, across any number of registrations."""

    def __init__(self, options: WorkerOptions, io: ControllerIO, back_off: BackOff) -> None:
        self._edition = EDITIONS[options.edition.value]
        self._announced = ceil(options.next_pulse)
        self._every = options.next_pulse / 2
        self._io = io
        self._back_off = back_off
        self._worker_id = 0  # 0: not registered
        self._is_unreachable = False  # registered by an id whose socket cannot be opened
        self._is_known = False  # a pulse of this registration got OK
        self._task: Task | None = None
        self._orphan: Task | None = None  # running since an earlier registration
        self._pending: PulseKind | None = None  # the pulse without a reply
        self._sent_at = 0.0
        self._has_outcome = False  # since the last pulse
        self._due = -inf  # time of the next pulse
        self._is_leaving = False
        self._fetch_by = inf
        self._leave_by = inf
        self.is_over = False

    @property
    def is_busy(self) -> bool:
        """Tell if it has a task that a stop should wait for."""
        return self._task is not None

    def stop(self, now: float) -> None:
        """Accept no more tasks; leave when no outcome is left to be fetched."""
        self._is_leaving = True
        if self._task is not None and self._task.is_over:
            self._fetch_by = now + FETCH_WAIT

    def tick(self, now: float) -> float:
        """Do what is due. Returns the time of the next call. Call it after every other method."""
        if self._is_leaving and (self._task is None or now >= self._fetch_by):
            return self._leave(now)
        if self._pending is not None:
            return self._fetch_by
        if now >= self._due:
            self._send(self._next_kind(), now)
            return self._fetch_by
        return min(self._due, self._fetch_by)

    # ---------------------------------------------------------------- pulses

    def answered(self, head: Frame, now: float) -> None:
        """Handle the reply to the last pulse."""
        kind = self._pending
        assert kind is not None, "a reply without a pulse"
        try:
            response = read_pulse_response(head, self._edition)
        except Malformed as problem:
            self.unanswered(problem.detail, now)
            return
        if response.error is ControllerError.UNKNOWN_ID and kind in (PulseKind.OK, PulseKind.FETCH_ME):
            self._pending = None
            self._register_again(now)
        elif response.error is not ControllerError.OK:
            status = response.error.value if response.error is not None else f"error {response.number}"
            self.unanswered(f"{kind.value} was answered with {status} (in the edition {self._edition.name})", now)
        elif kind is PulseKind.REGISTER and not response.worker_id:
            self.unanswered("REGISTER was answered with OK, but no id", now)
        else:
            self._pending = None
            self._accepted(kind, response.worker_id, now)

    def unanswered(self, problem: str, now: float) -> None:
        """Handle a pulse without a usable reply."""
        kind, self._pending = self._pending, None
        assert kind is not None
        self._due = now + self._back_off.next()
        self._io.log_limited(problem)
        if kind is PulseKind.SHUTDOWN:
            self._forget()

    def _accepted(self, kind: PulseKind, worker_id: int, now: float) -> None:
        if kind is PulseKind.REGISTER:
            self._due = now  # an OK tells that the socket is open
            self._worker_id = worker_id
            problem = None if self._is_leaving else self._io.listen(worker_id)
            if problem is not None:
                self._is_unreachable = True
                self._io.log_limited(problem)
        elif kind is PulseKind.SHUTDOWN:
            self._due = now + self._back_off.next()
            self._forget()
        else:
            self._is_known = True
            self._back_off.reset()
            self._due = now if self._has_outcome else self._sent_at + self._every

    def _register_again(self, now: float) -> None:
        """Register again: at once, or with a delay if the controller has never accepted this id."""
        self._io.log_limited(f"the controller does not know worker {self._worker_id} any more")
        self._due = now if self._is_known else now + self._back_off.next()
        if self._task is not None and not self._task.is_over:
            self._orphan = self._task
        self._task = None
        self._forget()
        self._io.stop_listening()

    def _forget(self) -> None:
        self._worker_id = 0
        self._is_unreachable = False
        self._is_known = False

    def _next_kind(self) -> PulseKind:
        if not self._worker_id:
            return PulseKind.REGISTER
        if self._is_unreachable:
            return PulseKind.SHUTDOWN  # no controller could reach this worker
        if self._task is not None and self._task.is_over:
            return PulseKind.FETCH_ME
        return PulseKind.OK

    def _send(self, kind: PulseKind, now: float) -> None:
        self._pending = kind
        self._sent_at = now
        self._has_outcome = False
        announced = 0 if kind is PulseKind.SHUTDOWN else self._announced
        head = write_pulse(
            kind, self._edition, worker_id=self._worker_id, task_id=self._current_id(), next_pulse=announced
        )
        self._io.pulse(head)

    def _leave(self, now: float) -> float:
        if self._task is not None:
            self._io.log_limited(f"the outcome of task {self._task.id} was not fetched within {FETCH_WAIT:g} s")
            self._task = None
        self._leave_by = min(self._leave_by, now + SHUTDOWN_WAIT)
        if self._pending is None and self._worker_id:
            self._send(PulseKind.SHUTDOWN, now)
        elif self._pending is None or now >= self._leave_by:
            self.is_over = True
        return self._leave_by

    # ---------------------------------------------------------------- control messages

    def receive(self, head: Frame, extra: Frame, now: float) -> Answer:
        """Return the response to a control message. `said` follows when it has been sent."""
        try:
            control = read_control(head, self._edition)
        except Malformed as problem:
            return self.refuse(problem.detail)
        if control.kind is ControlKind.SET_TASK:
            return self._take(control.task_id, extra)
        if control.kind is ControlKind.FETCH:
            return self._outcome_answer(now)
        if control.kind is ControlKind.GET_STATUS:
            return self._answer(WorkerError.OK)
        if control.kind is ControlKind.RESTART:
            return self._answer(WorkerError.OK, is_last=True)
        return self.refuse(f"unknown control message {control.number} in the edition {self._edition.name}")

    def refuse(self, problem: str) -> Answer:
        """Return the response to a malformed message."""
        return self._answer(WorkerError.FAILED, problem.encode())

    def said(self, answer: Answer, is_whole: bool, now: float) -> None:
        """Drop an outcome that was sent completely; otherwise it is fetched again (R94)."""
        if answer.is_last:
            self._is_leaving = True
            self._task = None
        elif answer.task is not None and answer.task is self._task and is_whole:
            self._task = None

    def _take(self, task_id: int, payload: Frame) -> Answer:
        if self._task is not None or self._orphan is not None or self._is_leaving or not self._worker_id:
            return self._answer(WorkerError.BUSY)
        self._task = Task(task_id)
        self._io.run(self._task, payload)
        return self._answer(WorkerError.OK)

    def _outcome_answer(self, now: float) -> Answer:
        task = self._task
        if task is None or not task.is_over:
            return self._answer(WorkerError.NO_FETCH)
        if self._is_leaving:
            self._fetch_by = now + FETCH_WAIT
        if task.result is not None:
            return self._answer(WorkerError.OK, task.result, task)
        assert task.failure is not None
        return self._answer(WorkerError.TASK_FAILED, task.failure.encode("utf-8", "replace"), task)

    def _answer(
        self, error: WorkerError, extra: Frame = b"", task: Task | None = None, is_last: bool = False
    ) -> Answer:
        head = write_response(error, self._edition, task_id=self._current_id(), extra_size=len(extra))
        return Answer((head, extra), task, is_last)

    def _current_id(self) -> int:
        return self._task.id if self._task is not None else 0

    # ---------------------------------------------------------------- tasks

    def finished(self, job_ref: Hashable, result: Frame, now: float) -> None:
        self._ended(job_ref, result, None, now)

    def failed(self, job_ref: Hashable, reason: str, now: float) -> None:
        self._ended(job_ref, None, reason, now)

    def _ended(self, job_ref: Hashable, result: Frame | None, failure: str | None, now: float) -> None:
        assert isinstance(job_ref, Task)
        if job_ref is self._orphan:
            self._orphan = None
        if job_ref is not self._task:
            return
        job_ref.result, job_ref.failure = result, failure
        self._has_outcome = True
        if self._is_leaving:
            self._fetch_by = now + FETCH_WAIT
        if self._pending is None:
            self._due = now
