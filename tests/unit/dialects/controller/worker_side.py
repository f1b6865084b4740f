"""The worker side of Worker-Controller with a controller written by hand."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from math import inf

from dragoman.dialects.controller import codec
from dragoman.dialects.controller.editions import Edition
from dragoman.dialects.controller.messages import ControlKind, ControllerError, Pulse, PulseKind, WorkerError
from dragoman.dialects.controller.options import EditionName, WorkerOptions
from dragoman.dialects.controller.peer import Answer, WorkerSide

REGISTER, OK, FETCH_ME, SHUTDOWN = PulseKind
RESTART, FETCH, SET_TASK, GET_STATUS = ControlKind
PAUSE = 0.25
EVERY = 5.0
Said = tuple[PulseKind | None, int, int, int]  # kind, worker id, task id, next_pulse
Replied = tuple[WorkerError | None, int, bytes]  # error, task id, extra bytes


@dataclass
class Pauses:
    """Equal delays, counted."""

    taken: int = 0

    def next(self) -> float:
        self.taken += 1
        return PAUSE

    def reset(self) -> None:
        self.taken = 0


@dataclass
class Worker:
    """A worker side and its I/O, which records all calls."""

    edition: Edition
    next_pulse: float = 2 * EVERY
    now: float = 100.0
    heads: list[bytes] = field(default_factory=list)
    runs: list[tuple[Hashable, bytes]] = field(default_factory=list)
    places: list[int | None] = field(default_factory=list)  # ids it has listened by; none: it stopped
    complaints: list[str] = field(default_factory=list)
    taken_ids: list[int] = field(default_factory=list)  # at which nobody can listen
    due: float = -inf

    def __post_init__(self) -> None:
        self.pauses = Pauses()
        self.side = WorkerSide(WorkerOptions("s", EditionName(self.edition.name), self.next_pulse), self, self.pauses)

    # the port

    def pulse(self, head: bytes) -> None:
        self.heads.append(head)

    def listen(self, worker_id: int) -> str | None:
        if worker_id in self.taken_ids:
            return f"{worker_id} is taken"
        self.places.append(worker_id)
        return None

    def stop_listening(self) -> None:
        self.places.append(None)

    def run(self, job_ref: Hashable, payload: bytes | bytearray) -> None:
        self.runs.append((job_ref, bytes(payload)))

    def log_limited(self, problem: str) -> None:
        assert problem
        self.complaints.append(problem)

    # what a test does

    def tick(self, seconds: float = 0.0) -> float:
        self.now += seconds
        self.due = self.side.tick(self.now)
        return self.due

    def said(self) -> list[Said]:
        """Return the pulses since the last call."""
        self.tick()
        heads, self.heads = self.heads, []
        return [self._read(head) for head in heads]

    def _read(self, head: bytes) -> Said:
        pulse: Pulse = codec.pulse_of(codec.read_pulse(head), self.edition)
        return pulse.kind, pulse.worker_id, pulse.task_id, pulse.next_pulse

    def answer(self, error: ControllerError = ControllerError.OK, worker_id: int = 0) -> None:
        """Reply to its pulse."""
        self.side.answered(codec.write_pulse_response(error, self.edition, worker_id=worker_id), self.now)
        self.tick()

    def registered(self, worker_id: int = 7) -> Worker:
        """Register it, and accept its first OK."""
        assert self.said() == [(REGISTER, 0, 0, 10)]
        self.answer(worker_id=worker_id)
        assert self.said() == [(OK, worker_id, 0, 10)]
        self.answer()
        return self

    def receive(self, kind: ControlKind, task_id: int = 0, extra: bytes = b"") -> Answer:
        head = codec.write_control(kind, self.edition, task_id=task_id, extra_size=len(extra))
        return self.side.receive(head, extra, self.now)

    def control(self, kind: ControlKind, task_id: int = 0, extra: bytes = b"") -> Replied:
        """Run a complete exchange. Returns the response."""
        answer = self.receive(kind, task_id, extra)
        self.side.said(answer, True, self.now)
        self.tick()
        return self.replied(answer)

    def replied(self, answer: Answer) -> Replied:
        head, extra = answer.frames
        response = codec.read_response(head, self.edition)
        assert response.extra_size == len(extra)
        return response.error, response.task_id, bytes(extra)

    def take(self, task_id: int, payload: bytes = b"job") -> Hashable:
        """Assign a task. Returns its `job_ref`."""
        assert self.control(SET_TASK, task_id, payload) == (WorkerError.OK, task_id, b"")
        assert self.runs[-1][1] == payload
        return self.runs[-1][0]

    def finish(self, job_ref: Hashable, result: bytes = b"result") -> None:
        self.side.finished(job_ref, result, self.now)
        self.tick()

    def fail(self, job_ref: Hashable, reason: str) -> None:
        self.side.failed(job_ref, reason, self.now)
        self.tick()

    def fetch_me(self, task_id: int, result: bytes = b"result") -> None:
        """Assign a task, finish it, and receive FETCH_ME."""
        self.finish(self.take(task_id), result)
        assert self.said() == [(FETCH_ME, 7, task_id, 10)]
        self.answer()

    def stop(self) -> None:
        self.side.stop(self.now)
        self.tick()


def kinds(said: Iterable[Said]) -> list[PulseKind | None]:
    return [each[0] for each in said]
