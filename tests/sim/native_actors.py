"""Programs of the native dialect: Dragoman's own client and worker sides, with real Zmtp objects on simulated pipes.

A client submits jobs and waits for all of them. Its connections are cut, or it closes one and dials again at once, so
that bytes of the old connection arrive after those of the new one. A worker does the jobs it gets. From `is_calm` on
there are no faults.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import inf

from dragoman.carriers.carrier import Frame
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_limits import ZmtpLimits
from dragoman.core.states import Outcome
from dragoman.dialects.native.options import ClientOptions, WorkerOptions
from dragoman.dialects.native.peer import ClientSide, WorkerSide
from dragoman.dialects.sides import NOTHING_SAID, Failure, JobInfo, SubmitOptions
from sim.broker_setup import Setup
from sim.native_oracle import NativeOracle, require
from sim.oracle import result_of
from sim.pipes import End, Wire

ENDPOINT = "native"
LIMITS = ZmtpLimits(max_frames=2000)
Dialled = Callable[["Program", Wire, int], None]


class Program:
    """One process and its connections, one after the other."""

    def __init__(self, setup: Setup, oracle: NativeOracle, name: str, dialled: Dialled) -> None:
        self.name = name
        self.connections: list[tuple[bytearray, bytearray]] = []  # for each: bytes sent, bytes received
        self.is_calm = False
        self.is_up = True
        self.setup = setup
        self.world = setup.world
        self.oracle = oracle
        self.end: End | None = None
        self.side: ClientSide | WorkerSide
        self._dialled = dialled
        self._carrier = Zmtp("DEALER")
        self._is_open = False
        self._timer = 0

    def connect(self) -> None:
        if self.end is not None or not self.is_up:
            return
        end = self.setup.knock(ENDPOINT, f"{self.name}.{len(self.connections)}")
        if end is None:
            self.world.after(self.world.random.uniform(0.05, 0.3), self.connect)
            return
        self.end = end
        self._carrier = Zmtp("DEALER", dials=True, limits=LIMITS)
        self._is_open = False
        self.connections.append((bytearray(), bytearray()))
        end.on_bytes = lambda data: self._arrived(end, data)
        end.on_end = lambda problem: self._ended(end)
        self._dialled(self, end.wire, len(self.connections))
        self._post()

    def hang_up(self) -> None:
        """Close, and dial again at once: bytes in transit still arrive."""
        if self.end is not None:
            end, self.end = self.end, None
            end.close()
            self._lost()
            self.connect()

    def reconnect(self, reason: str) -> None:
        if self.end is not None:
            end, self.end = self.end, None
            end.close()
            self.world.soon(self._lost_and_back)

    def send(self, frames: Sequence[Frame]) -> None:
        if self.end is not None and self._is_open:
            self.sends(frames)
            self._write(self._carrier.encode(frames))

    def sends(self, frames: Sequence[Frame]) -> None: ...

    def hears(self, message: list[Frame]) -> None: ...

    def flush(self) -> None: ...

    def _arrived(self, end: End, data: bytes) -> None:
        if end is not self.end:
            return
        self.connections[-1][1].extend(data)
        messages = self._carrier.feed(data)
        require(self._carrier.failure is None, "document", f"{self.name} cannot read what comes")
        self._post()
        if not self._is_open and self._carrier.ready:
            self._is_open = True
            self.side.opened(self.world.now)
        for message in messages:
            assert isinstance(message, list)
            if end is not self.end:
                return
            self.hears(message)
            self.side.receive(message, self.world.now)
        self.flush()
        self._look_at_clock()

    def _ended(self, end: End) -> None:
        if end is self.end:
            self.end = None
            self._lost_and_back()

    def _lost_and_back(self) -> None:
        self._lost()
        delay = 0.01 if self.is_calm else self.world.random.choice((0.0, 0.01, 0.2, 1.0))
        self.world.after(delay, self.connect)

    def _lost(self) -> None:
        if self._is_open:
            self._is_open = False
            self.side.lost()

    def _post(self) -> None:
        outgoing, self._carrier.outgoing = self._carrier.outgoing, []
        if outgoing:
            self._write(outgoing)

    def _write(self, buffers: Sequence[Frame]) -> None:
        assert self.end is not None
        data: list[Frame] = [b"".join(buffers)]
        self.connections[-1][0].extend(data[0])
        self.end.write(data)

    def _look_at_clock(self) -> None:
        self._timer += 1
        due = self.side.tick(self.world.now)
        if due != inf:
            self.world.at(due, self._timed, self._timer)

    def _timed(self, number: int) -> None:
        if number == self._timer and self.end is not None:
            self._look_at_clock()


class Client(Program):
    """Submits `jobs` jobs, one or some at a time, and counts the outcomes."""

    def __init__(
        self, setup: Setup, oracle: NativeOracle, name: str, dialled: Dialled, *, jobs: int, window: int, pace: float
    ) -> None:
        super().__init__(setup, oracle, name, dialled)
        random = self.world.random
        self.side: ClientSide = ClientSide(ClientOptions(window=window), self, random.randbytes(16).hex())
        self.awaited: set[bytes] = set()  # ids of submitted jobs without an outcome
        self._job_options = SubmitOptions("echo", waits=True, attempts=oracle.attempts)
        self._jobs = jobs
        self._pace = pace
        self.open_jobs = 0
        self.connect()
        self.world.after(0.01, self._submit)

    @property
    def is_done(self) -> bool:
        return not self._jobs and not self.open_jobs

    def submit(self) -> None:
        """One more job."""
        random = self.world.random
        id = random.randbytes(16)
        payload = self.oracle.new_job(self.name, id, random.choice((0, 20, 300)))
        self.open_jobs += 1
        self.side.submit(payload, self._job_options, payload, id, self.world.now)
        self.side.flush(self.world.now)
        if not self.is_calm and random.random() < self.oracle.cancels:
            self.oracle.cancelled(payload)
            self.world.after(random.choice((0.0, 0.05, 0.5)), lambda: self.side.cancel(id, self.world.now))

    def sends(self, frames: Sequence[Frame]) -> None:
        if frames[0][0] == 0x10:
            ids = [bytes(frames[1][at : at + 16]) for at in range(0, len(frames[1]), 16)]
            for id in ids:
                require(id not in self.awaited or id in self.oracle.missing, "MISSING", f"{id.hex()} is sent twice")
            self.awaited.update(ids)

    def hears(self, message: list[Frame]) -> None:
        word, head = message[0][0], bytes(message[0])
        told = [head[at : at + 16] for at in range(1, len(head), 16)] if word == 0x20 else []
        if word == 0x21:
            told = [head[2:18]]
        for id in told:
            require(id in self.awaited, "once", f"{self.name} is told again how {id.hex()} ended")
            self.awaited.discard(id)
        if word == 0x15:
            names = bytes(message[1])
            self.oracle.misses([names[at : at + 16] for at in range(0, len(names), 16)])

    def flush(self) -> None:
        self.side.flush(self.world.now)

    def _submit(self) -> None:
        if self._jobs:
            for _ in range(min(self._jobs, self.world.random.choice((1, 1, 2, 5)))):
                self._jobs -= 1
                self.submit()
            self.world.after(self.world.random.uniform(0.0, self._pace), self._submit)

    # ---------------------------------------------------------------- the port

    def answered(self, job_ref: Hashable, result: Frame) -> None:
        assert isinstance(job_ref, bytes)
        self.open_jobs -= 1
        self.oracle.answered(job_ref, bytes(result))

    def ended(
        self,
        job_ref: Hashable,
        outcome: Outcome | None,
        reason: str,
        failure: Failure | None = None,
        refusal: str = "",
    ) -> None:
        assert isinstance(job_ref, bytes)
        assert outcome is not None
        self.open_jobs -= 1
        self.oracle.ended(job_ref, outcome, reason, failure)

    def abandoned(self, job_ref: Hashable, reason: str) -> None:
        assert isinstance(job_ref, bytes)
        self.open_jobs -= 1
        self.oracle.ended(job_ref, "unavailable", reason)
        self.awaited.clear()

    def reported(self, job_ref: Hashable, payload: Frame, is_part: bool, attempt: int) -> None: ...

    def told(self, job_ref: Hashable, view: bytes, payload: Frame) -> None: ...

    def operation_failed(self, job_ref: Hashable, kind: str, detail: str) -> None: ...


class Worker(Program):
    def __init__(
        self, setup: Setup, oracle: NativeOracle, name: str, dialled: Dialled, *, concurrency: int, slowest: float
    ) -> None:
        super().__init__(setup, oracle, name, dialled)
        self.side: WorkerSide = WorkerSide(WorkerOptions(prefetch=1), self, ["echo"], concurrency)
        self._slowest = slowest
        self._working: set[Hashable] = set()
        self.connect()

    # ---------------------------------------------------------------- the port

    def run(self, job_ref: Hashable, payload: Frame, assignment: JobInfo = NOTHING_SAID) -> None:
        self.oracle.executes(self.name, bytes(payload), assignment.job_id)
        self._working.add(job_ref)
        self.world.after(self.world.random.uniform(0.0, self._slowest), self._finish, job_ref, bytes(payload))

    def _finish(self, job_ref: Hashable, payload: bytes) -> None:
        if job_ref in self._working:
            self._working.remove(job_ref)
            if payload in self.oracle.failing:
                self.side.failed(job_ref, "no", self.world.now, Failure("Failed", "no", "why"))
            else:
                self.side.finished(job_ref, result_of(payload), self.world.now)
                self.world.soon(lambda: self.side.flush(self.world.now))

    def recall(self, job_ref: Hashable, reason: str) -> None:
        if job_ref in self._working and self.world.chance(0.5):
            self._working.remove(job_ref)
            self.world.soon(lambda: self.side.returned(job_ref, self.world.now))

    def leave(self, reason: str) -> None:
        self.end = None
        self.world.after(0.05, self.connect)
