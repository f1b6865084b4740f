"""The other side of Worker-Controller: a worker for any controller, which has no clients. Pure, like the session.

A worker has no connection of its own. A pulse is an exchange that it begins, on the controller's socket, one after
another; a control message is an exchange that it answers, on a socket named by its id. So whoever runs it implements
`Port`, and carries each exchange on a connection that lasts no longer.

**Its life.** REGISTER is answered with an id. Then it listens, and pulses: OK, or FETCH_ME as long as a task's outcome
waits to be fetched. The task is its task until its outcome has been fetched, and it takes no other meanwhile.
UNKNOWN_ID to a pulse is the end of that life, and the next begins with REGISTER. A task from a life that is over goes
on, for it cannot be taken back, and until it ends the worker is BUSY; what comes of it is nobody's.

**Its end.** RESTART is answered, and then nothing is waited for. `stop` waits for the task, and a while for somebody to
fetch its outcome. Either way SHUTDOWN is the last word.
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

FETCH_WAIT: Final = 10.0  # how long we stay for an outcome to be fetched once we are told to stop
LAST_WORD: Final = 2.0  # and then for SHUTDOWN to be said and answered


class ControllerIO(Protocol):
    """What a worker's conversation asks for."""

    def pulse(self, head: bytes) -> None:
        """Say this to the controller. `answered` or `unanswered` follows."""

    def listen(self, worker_id: int) -> str | None:
        """Be there for control messages by this id; returns why not, if that cannot be."""

    def stop_listening(self) -> None: ...

    def run(self, job_ref: Hashable, payload: Frame) -> None:
        """Start the job. `finished` or `failed` follows with the same ticket."""

    def log_limited(self, problem: str) -> None: ...


class BackOff(Protocol):
    """How long to wait before the next try: longer each time, until it worked."""

    def next(self) -> float: ...

    def reset(self) -> None: ...


class Task:
    """One task: under way, or over, with a result or a failure to be fetched."""

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
    """To a control message: the `frames` to say, and whose outcome they are."""

    frames: Sequence[Frame]
    task: Task | None = None
    is_last: bool = False  # to RESTART


class WorkerSide:
    """One worker's side, for one life after another."""

    def __init__(self, options: WorkerOptions, port: ControllerIO, pauses: BackOff) -> None:
        self._edition = EDITIONS[options.edition.value]
        self._promise = ceil(options.next_pulse)
        self._every = options.next_pulse / 2
        self._port = port
        self._pauses = pauses
        self._worker_id = 0  # none: not registered
        self._is_deaf = False  # registered by an id at which we cannot listen
        self._is_known = False  # a pulse of this life was answered with OK
        self._task: Task | None = None
        self._nobodys: Task | None = None  # under way since a life that is over
        self._saying: PulseKind | None = None  # the pulse that has no answer yet
        self._said_at = 0.0
        self._has_news = False  # which came after the last pulse
        self._due = -inf  # when to pulse next
        self._is_leaving = False
        self._fetch_by = inf
        self._gone_by = inf
        self.is_over = False

    @property
    def is_busy(self) -> bool:
        """Whether it has a task that a stop should wait for."""
        return self._task is not None

    def stop(self, now: float) -> None:
        """Take no more tasks; leave once there is nothing to be fetched."""
        self._is_leaving = True
        if self._task is not None and self._task.is_over:
            self._fetch_by = now + FETCH_WAIT

    def tick(self, now: float) -> float:
        """Do what is due, and say when to come again. To be called after everything else that is called here."""
        if self._is_leaving and (self._task is None or now >= self._fetch_by):
            return self._go(now)
        if self._saying is not None:
            return self._fetch_by
        if now >= self._due:
            self._say(self._next_word(), now)
            return self._fetch_by
        return min(self._due, self._fetch_by)

    # ---------------------------------------------------------------- pulses

    def answered(self, head: Frame, now: float) -> None:
        """The answer to the last pulse has come."""
        kind = self._saying
        assert kind is not None, "an answer, and no pulse that it is for"
        try:
            response = read_pulse_response(head, self._edition)
        except Malformed as problem:
            self.unanswered(problem.detail, now)
            return
        if response.error is ControllerError.UNKNOWN_ID and kind in (PulseKind.OK, PulseKind.FETCH_ME):
            self._saying = None
            self._begin_anew(now)
        elif response.error is not ControllerError.OK:
            word = response.error.value if response.error is not None else f"error {response.number}"
            self.unanswered(f"{kind.value} was answered with {word} (in the edition {self._edition.name})", now)
        elif kind is PulseKind.REGISTER and not response.worker_id:
            self.unanswered("REGISTER was answered with OK, but no id", now)
        else:
            self._saying = None
            self._accepted(kind, response.worker_id, now)

    def unanswered(self, problem: str, now: float) -> None:
        """The last pulse led nowhere: it could not be said, or what came back is of no use."""
        kind, self._saying = self._saying, None
        assert kind is not None
        self._due = now + self._pauses.next()
        self._port.log_limited(problem)
        if kind is PulseKind.SHUTDOWN:
            self._forget()

    def _accepted(self, kind: PulseKind, worker_id: int, now: float) -> None:
        if kind is PulseKind.REGISTER:
            self._due = now  # an OK says that our socket is there
            self._worker_id = worker_id
            problem = None if self._is_leaving else self._port.listen(worker_id)
            if problem is not None:
                self._is_deaf = True
                self._port.log_limited(problem)
        elif kind is PulseKind.SHUTDOWN:
            self._due = now + self._pauses.next()
            self._forget()
        else:
            self._is_known = True
            self._pauses.reset()
            self._due = now if self._has_news else self._said_at + self._every

    def _begin_anew(self, now: float) -> None:
        """A controller that has never known us by this id will hardly do so when asked at once."""
        self._port.log_limited(f"worker {self._worker_id} is not known there any more")
        self._due = now if self._is_known else now + self._pauses.next()
        if self._task is not None and not self._task.is_over:
            self._nobodys = self._task
        self._task = None
        self._forget()
        self._port.stop_listening()

    def _forget(self) -> None:
        self._worker_id = 0
        self._is_deaf = False
        self._is_known = False

    def _next_word(self) -> PulseKind:
        if not self._worker_id:
            return PulseKind.REGISTER
        if self._is_deaf:
            return PulseKind.SHUTDOWN  # nobody could ever reach us by this id
        if self._task is not None and self._task.is_over:
            return PulseKind.FETCH_ME
        return PulseKind.OK

    def _say(self, kind: PulseKind, now: float) -> None:
        self._saying = kind
        self._said_at = now
        self._has_news = False
        promise = 0 if kind is PulseKind.SHUTDOWN else self._promise
        head = write_pulse(
            kind, self._edition, worker_id=self._worker_id, task_id=self._current_id(), next_pulse=promise
        )
        self._port.pulse(head)

    def _go(self, now: float) -> float:
        if self._task is not None:
            self._port.log_limited(f"nobody fetched the outcome of task {self._task.id} within {FETCH_WAIT:g} s")
            self._task = None
        self._gone_by = min(self._gone_by, now + LAST_WORD)
        if self._saying is None and self._worker_id:
            self._say(PulseKind.SHUTDOWN, now)
        elif self._saying is None or now >= self._gone_by:
            self.is_over = True
        return self._gone_by

    # ---------------------------------------------------------------- control messages

    def receive(self, head: Frame, extra: Frame, now: float) -> Answer:
        """What a control message is answered with. `said` follows, with what became of that."""
        try:
            control = read_control(head, self._edition)
        except Malformed as problem:
            return self.refuse(problem.detail)
        if control.kind is ControlKind.SET_TASK:
            return self._take(control.task_id, extra)
        if control.kind is ControlKind.FETCH:
            return self._hand_over(now)
        if control.kind is ControlKind.GET_STATUS:
            return self._answer(WorkerError.OK)
        if control.kind is ControlKind.RESTART:
            return self._answer(WorkerError.OK, is_last=True)
        return self.refuse(f"there is no control message {control.number} in the edition {self._edition.name}")

    def refuse(self, problem: str) -> Answer:
        """The answer to what cannot be understood."""
        return self._answer(WorkerError.FAILED, problem.encode())

    def said(self, answer: Answer, is_whole: bool, now: float) -> None:
        """An outcome that was not said whole will be fetched once more (R94)."""
        if answer.is_last:
            self._is_leaving = True
            self._task = None
        elif answer.task is not None and answer.task is self._task and is_whole:
            self._task = None

    def _take(self, task_id: int, payload: Frame) -> Answer:
        if self._task is not None or self._nobodys is not None or self._is_leaving or not self._worker_id:
            return self._answer(WorkerError.BUSY)
        self._task = Task(task_id)
        self._port.run(self._task, payload)
        return self._answer(WorkerError.OK)

    def _hand_over(self, now: float) -> Answer:
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
        if job_ref is self._nobodys:
            self._nobodys = None
        if job_ref is not self._task:
            return
        job_ref.result, job_ref.failure = result, failure
        self._has_news = True
        if self._is_leaving:
            self._fetch_by = now + FETCH_WAIT
        if self._saying is None:
            self._due = now
