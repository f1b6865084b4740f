"""Simulated MemoDB processes: each has one REQ socket of NNG, which its workers and callers share as contexts.

`NngSocket` does what libnng does underneath a program, with a real Sp object for every connection:

- a context has one request outstanding; sending another one drops it;
- a request is sent when there is a connection, again under the same id when the resend timer fires, and again at once
  on every new connection, until its reply arrives;
- a reply whose id is not outstanding is dropped.

The programs are written from the MemoDB document alone and share no code with the dialect. They are driven by events
and never wait. From `is_calm` on all are correct: none is slow, lazy or impatient any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from dragoman.carriers.sp import Sp
from sim.broker_setup import Setup
from sim.memodb_oracle import MemoDbOracle, require, result_of
from sim.pipes import End, Wire

ENDPOINT = "memodb"
READY, JOB, RESULT, HEARTBEAT, DISCONNECT = 1, 2, 3, 4, 5
VERSION = b"\x66memo01"
KEEP_ALIVE = 20.0  # seconds within which a kernel drops a connection whose other side has vanished


# -------------------------------------------------------------------- the document's messages, as far as these need
# them


def ready(services: tuple[str, ...]) -> bytes:
    return b"\x84" + VERSION + b"\x01\x40" + bytes((0x80 + len(services),)) + b"".join(map(_text, services))


def job(service: str, timeout: int, payload: bytes) -> bytes:
    return b"\x85" + VERSION + b"\x02\x40" + _text(service) + _integer(timeout) + payload


def result(worker_id: bytes, payload: bytes, *, leaves: bool) -> bytes:
    if leaves:
        return b"\x84" + VERSION + b"\x03" + _bytes(worker_id) + b"\xf5" + payload
    return b"\x83" + VERSION + b"\x03" + _bytes(worker_id) + payload


def heartbeat(worker_id: bytes) -> bytes:
    return b"\x83" + VERSION + b"\x04" + _bytes(worker_id)


def _text(text: str) -> bytes:
    return bytes((0x60 + len(text),)) + text.encode()


def _bytes(some: bytes) -> bytes:
    return bytes((0x40 + len(some),)) + some


def _integer(value: int) -> bytes:
    if value < 0:
        return bytes((0x1F - value,))
    return b"\x1a" + value.to_bytes(4, "big") if value > 0xFFFF else b"\x19" + value.to_bytes(2, "big")


@dataclass(slots=True)
class Heard:
    kind: int
    id: bytes
    service: str
    timeout: int
    payload: bytes


def understand(body: bytes) -> Heard:
    """Decode a message of the broker, which must use the shortest encoding."""
    require(body[1:8] == VERSION, "document", f"{body[:8].hex(' ')} is no header")
    kind, length = body[8], body[9] - 0x40
    require(body[0] == (0x85 if kind == JOB else 0x83), "document", f"{body[0]:#x} items for type {kind}")
    at = 10 + length
    heard = Heard(kind, body[10:at], "", 0, b"")
    if kind == JOB:
        end = at + 1 + body[at] - 0x60
        heard.service = body[at + 1 : end].decode()
        sizes = {0x19: 3, 0x1A: 5}
        size = sizes.get(body[end], 1)
        heard.timeout = int.from_bytes(body[end + 1 : end + size], "big") if size > 1 else 0x1F - body[end]
        at = end + size
    heard.payload = body[at:]
    require(not heard.payload or kind in (JOB, RESULT), "document", f"type {kind} with a payload")
    return heard


# -------------------------------------------------------------------- the socket


class Context:
    """One requester: one request at a time."""

    request: Request | None = None

    def receive(self, heard: Heard) -> None:
        raise NotImplementedError


@dataclass(slots=True, eq=False)
class Request:
    context: Context
    id: bytes
    body: bytes
    sendings: int = 0


@dataclass(slots=True)
class Traffic:
    """Bytes of one connection that arrived at the actor or left it."""

    written: bytearray
    heard: bytearray


class NngSocket:
    def __init__(
        self,
        setup: Setup,
        oracle: MemoDbOracle,
        label: str,
        *,
        resend: float,
        first_id: int,
        outruns: bool,
        dialled: Callable[[Wire, int], None],
    ) -> None:
        self.label = label
        self.connections: list[Traffic] = []
        self._setup = setup
        self._world = setup.world
        self._oracle = oracle
        self._resend = resend
        self._next_id = first_id
        self._outruns = outruns  # reconnects before the broker has noticed the end of the old connection
        self._dialled = dialled
        self._outstanding: dict[bytes, Request] = {}
        self._end: End | None = None
        self._former: End | None = None
        self._carrier = Sp("REQ")
        self._is_closed = False
        self._connect()

    @property
    def end(self) -> End | None:
        return self._end

    def ask(self, context: Context, body: bytes) -> None:
        self.drop(context)
        self._next_id = 0x80000000 | (self._next_id + 1)
        request = context.request = Request(context, self._next_id.to_bytes(4, "big"), body)
        self._outstanding[request.id] = request
        self._oracle.asks(self.label, request.id, body)
        self._transmit(request)

    def drop(self, context: Context) -> None:
        if context.request is not None:
            del self._outstanding[context.request.id]
            context.request = None

    def die(self) -> None:
        """The process is gone: nothing is written any more, and what was is lost."""
        self._is_closed = True
        if self._end is not None:
            self._end.wire.cut()

    def hang_up(self) -> None:
        """Close the connection and dial again at once: bytes in transit may arrive after those of the new one."""
        if self._end is not None and not self._is_closed:
            self._end.close()
            self._end = self._former = None
            self._connect()

    # ---------------------------------------------------------------- requests

    def _transmit(self, request: Request) -> None:
        if self._end is None or not self._carrier.ready:
            return  # it goes out as soon as there is a connection
        request.sendings += 1
        if request.sendings > 1:
            self._oracle.hit("requests sent again")
        self._write(self._end, self._carrier.encode([request.id, request.body]))
        self._world.after(self._resend, self._repeat, request, request.sendings)

    def _repeat(self, request: Request, sendings: int) -> None:
        if not self._is_closed and request.sendings == sendings and self._outstanding.get(request.id) is request:
            if self._end is not None and self._carrier.ready:
                self._oracle.hit("resend timer")
            self._transmit(request)

    def _receive(self, route: bytes, body: bytes) -> None:
        self._oracle.arrives(self.label, route, body)
        request = self._outstanding.pop(route, None)
        if request is None:
            self._oracle.hit("answers nobody waits for any more")
            return
        request.context.request = None
        request.context.receive(understand(body))

    # ---------------------------------------------------------------- connections

    def _connect(self) -> None:
        if self._is_closed:
            return
        if not self._outruns and self._former is not None and not _is_known_to_be_over(self._former.other):
            self._world.after(0.02, self._connect)
            return
        end = self._setup.knock(ENDPOINT, self.label)
        if end is None:
            self._world.after(self._world.random.uniform(0.1, 0.5), self._connect)
            return
        self._end = end
        self._carrier = Sp("REQ")
        self.connections.append(Traffic(bytearray(), bytearray()))
        self._dialled(end.wire, len(self.connections))
        end.on_bytes = partial(self._arrived, end)
        end.on_end = partial(self._over, end)
        self._write(end, self._carrier.outgoing)
        self._carrier.outgoing = []

    def _arrived(self, end: End, data: bytes) -> None:
        if self._is_closed or end is not self._end:
            return
        self.connections[-1].heard += data
        was_ready = self._carrier.ready
        messages = self._carrier.feed(data)
        assert self._carrier.failure is None, self._carrier.failure
        if self._carrier.ready and not was_ready:
            for request in list(self._outstanding.values()):
                self._transmit(request)
        for message in messages:
            assert isinstance(message, list)
            self._receive(bytes(message[0]), bytes(message[1]))

    def _write(self, end: End, buffers: list[bytes | bytearray]) -> None:
        for buffer in buffers:
            self.connections[-1].written += buffer
        end.write(buffers)

    def _over(self, end: End, problem: str) -> None:
        end.close()
        if not self._is_closed and end is self._end:
            self._end, self._former = None, end
            self._world.after(self._world.random.choice((0.001, 0.02, 0.1, 0.3)), self._connect)


def _is_known_to_be_over(end: End) -> bool:
    """True if this side knows, or will before it accepts the next connection, that this connection has ended."""
    return end.is_over or end.is_closed or (end.is_frozen and any(isinstance(piece, str) for piece in end.inbox))


# -------------------------------------------------------------------- the programs


@dataclass(frozen=True, slots=True)
class Habits:
    """Behaviour of the actors before the faults end."""

    job_timeouts: tuple[int, ...] = (60_000,)  # ms, one of which a caller names; -1: none
    slowest: float = 1.0  # seconds a job may take
    think: float = 0.5  # seconds between a caller's jobs, at most
    patience: float | None = None  # after which a caller submits another job
    worker_patience: float | None = None  # after which a worker sends READY again
    goodbyes: float = 0.0  # probability that a worker leaves with its result
    laziness: float = 0.0  # probability that a worker is slow to answer a HEARTBEAT
    largest: int = 300  # bytes of filler in a payload, at most
    jobs: int | None = None  # number of jobs of a caller; None: until it is stopped


class Process:
    """One NNG socket, and the workers and callers that share it."""

    def __init__(
        self,
        setup: Setup,
        oracle: MemoDbOracle,
        name: str,
        address: str,
        habits: Habits,
        *,
        workers: int,
        callers: int,
        services: tuple[str, ...],
        resend: float,
        counts: bool,
        outruns: bool,
        dialled: Callable[[Process, Wire, int], None],
    ) -> None:
        self.name = name
        self.is_calm = False
        self.workers: list[Worker] = []
        self.callers: list[Caller] = []
        self.setup = setup
        self.oracle = oracle
        self.habits = habits
        self.services = services
        self._address = address
        self._workers = workers
        self._callers = callers
        self._resend = resend
        self._counts = counts  # its request ids begin at the same number in every life
        self._outruns = outruns
        self._dialled = dialled
        self._life = 0
        self._is_dead = True
        self._start()

    @property
    def is_up(self) -> bool:
        return not self._is_dead

    def crash(self, downtime: float) -> None:
        """Die and be started again."""
        if not self._is_dead:
            self.setup.world.note(self.name, "dies")
            self._is_dead = True
            self.socket.die()
            for context in (*self.workers, *self.callers):
                context.is_dead = True
            self.workers, self.callers = [], []
            self.setup.world.after(downtime, self._start)

    def _start(self) -> None:
        world = self.setup.world
        self._is_dead = False
        self._life += 1
        first_id = 0 if self._counts else world.random.getrandbits(31)
        label = f"{self.name}.{self._life}@{self._address}"
        dialled = partial(self._dialled, self)
        self.socket = NngSocket(
            self.setup,
            self.oracle,
            label,
            resend=self._resend,
            first_id=first_id,
            outruns=self._outruns,
            dialled=dialled,
        )
        self.workers = [Worker(self, f"{label} worker {number}") for number in range(self._workers)]
        self.callers = [Caller(self, f"{label} caller {number}") for number in range(self._callers)]


class Worker(Context):
    def __init__(self, process: Process, name: str) -> None:
        self.name = name
        self.id = b""  # its id at the broker, as far as known
        self.is_dead = False
        self.is_at_work = False
        self._process = process
        self._oracle = process.oracle
        self._world = process.setup.world
        self._step = 0
        self._join()

    def receive(self, heard: Heard) -> None:
        require(len(heard.id) == 16, "R66", f"{self.name} is called {heard.id.hex()}")
        require(self.id in (b"", heard.id), "R60", f"{self.name} is {self.id.hex()} and was called {heard.id.hex()}")
        self._step += 1
        if heard.kind == JOB:
            self.id = heard.id
            self._work(heard)
        elif heard.kind == HEARTBEAT:
            self.id = heard.id
            lazy = self._likes(self._process.habits.laziness)
            self._later(self._world.random.uniform(0.5, 8.0) if lazy else 0.0, self._beat)
        else:
            require(heard.kind == DISCONNECT, "document", f"{self.name} heard type {heard.kind}")
            self.id = b""
            self._later(self._world.random.choice((0.0, 0.0, 0.2)), self._join)

    def _work(self, heard: Heard) -> None:
        self._oracle.executes(self.name, heard.payload, heard.service, heard.timeout)
        self._world.note(self.name, b"runs " + heard.payload[:16])
        self.is_at_work = True
        random = self._world.random
        slowest = 0.05 if self._process.is_calm else self._process.habits.slowest
        self._later(0.001 + slowest * random.random() ** 2, self._finish, heard.payload)

    def _finish(self, payload: bytes) -> None:
        self.is_at_work = False
        leaves = self._likes(self._process.habits.goodbyes)
        self._say(result(self.id, result_of(payload), leaves=leaves))

    def _join(self) -> None:
        self.id = b""
        self._say(ready(self._process.services))

    def _beat(self) -> None:
        self._say(heartbeat(self.id))

    def _say(self, body: bytes) -> None:
        self._step += 1
        self._process.socket.ask(self, body)
        patience = self._process.habits.worker_patience
        if patience is not None:
            self._later(patience, self._start_over)

    def _start_over(self) -> None:
        if not self._process.is_calm:
            self._oracle.hit("workers that start over")
            self._join()

    def _later(self, seconds: float, call: Callable[..., None], *args: object) -> None:
        """Call back in this many seconds, unless the worker does something else meanwhile."""
        self._world.after(seconds, self._go_on, self._step, call, args)

    def _go_on(self, step: int, call: Callable[..., None], args: tuple[object, ...]) -> None:
        if step == self._step and not self.is_dead:
            call(*args)

    def _likes(self, likelihood: float) -> bool:
        return not self._process.is_calm and self._world.chance(likelihood)


class Caller(Context):
    def __init__(self, process: Process, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.answered = 0
        self._process = process
        self._oracle = process.oracle
        self._world = process.setup.world
        self._asked = 0
        self._payload = b""
        self._plan()

    @property
    def is_done(self) -> bool:
        """True if it has submitted all its jobs and has their outcomes."""
        return self.request is None and self._asked == self._process.habits.jobs

    def ask(self) -> None:
        habits, random = self._process.habits, self._world.random
        service = random.choice(self._oracle.services)
        timeout = random.choice(habits.job_timeouts)
        self._payload = self._oracle.new_job(random.choice((0, 0, 40, habits.largest)), service, timeout)
        self._asked += 1
        self._process.socket.ask(self, job(service, timeout, self._payload))
        if habits.patience is not None:
            self._world.after(random.uniform(0.2, 1.0) * habits.patience, self._lose_patience, self._asked)

    def receive(self, heard: Heard) -> None:
        require(heard.kind == RESULT and not heard.id, "document", f"{self.name} heard {heard}")
        right = heard.payload == result_of(self._payload)
        require(right, "I7", f"{self.name} got a wrong answer to {self._payload[:16]!r}")
        self._oracle.answered(self._payload)
        self.answered += 1
        self._plan()

    def _plan(self) -> None:
        think = self._process.habits.think
        self._world.after(think * self._world.random.choice((0.0, 0.1, 1.0)), self._ask_again)

    def _ask_again(self) -> None:
        if not (self.is_dead or self._process.is_calm or self.request is not None or self.is_done):
            self.ask()

    def _lose_patience(self, number: int) -> None:
        if number == self._asked and self.request is not None and not (self.is_dead or self._process.is_calm):
            self._oracle.gives_up(self._payload)
            self.ask()
