"""Simulated PingPong programs: correct and faulty workers, and callers.

Each has a `Socket` of its own, which does what libzmq does underneath a program, with a real Zmtp object for every
connection. The programs are written from the document alone and share no code with the dialect; they are driven by
events and never wait.

A worker sends READY once for each socket it opens, PING every second, and closes its socket and opens another after
three seconds without a message (N_TIMEOUTS × BROKER_TIMEOUT). Workers differ in these properties:

- *threaded*: continues to read and ping while it works. Otherwise it neither reads nor pings while it works.
- *transparent*: its socket reconnects by itself, as libzmq's does, without notice to the program; what it sends
  meanwhile goes out on the next connection. Otherwise it is notified, drops its job, and opens a new socket.
- *carries over* (R39): sends the result of a job that it received on an earlier socket. Dragoman's worker never does.

The mutants are subclasses that do one thing wrong, with a certain probability. From `is_calm` on all are correct.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from dragoman.carriers.carrier import Message, TooLarge
from dragoman.carriers.zmtp import Zmtp
from sim.broker_setup import Setup
from sim.oracle import Conversation, Oracle, result_of
from sim.pipes import End
from sim.world import World

BACKEND, FRONTEND = "backend", "frontend"
PING_EVERY = 1.0
PATIENCE = 3.0  # N_TIMEOUTS × BROKER_TIMEOUT
KEEP_ALIVE = 20.0  # seconds after which a kernel drops a connection whose other side has vanished
READY = [b"", b"READY"]
PING = [b"", b"PING"]


class Socket:
    """A DEALER or REQ socket that connects to one place."""

    def __init__(
        self,
        setup: Setup,
        endpoint: str,
        kind: str,
        label: str,
        heard: Callable[[Message | TooLarge], None],
        ended: Callable[[], None] | None,
        identity: bytes = b"",
    ) -> None:
        self._setup = setup
        self._world = setup.world
        self._endpoint = endpoint
        self._kind = kind
        self._label = label
        self._identity = identity
        self._heard = heard
        self._ended = ended  # None: reconnect without a callback
        self._queue: deque[list[bytes]] = deque()
        self._end: End | None = None
        self._carrier = Zmtp(kind, identity)
        self._is_closed = False
        self._is_frozen = False
        self._connect()

    def send(self, frames: list[bytes]) -> None:
        if self._end is not None and self._carrier.ready:
            self._end.write(self._carrier.encode(frames))
        else:
            self._queue.append(frames)

    def close(self) -> None:
        self._is_closed = True
        if self._end is not None:
            self._end.close()

    def die(self) -> None:
        """The process is gone: nothing is written any more, and what was is lost."""
        self._is_closed = True
        if self._end is not None:
            self._end.wire.cut()

    def freeze(self) -> None:
        self._is_frozen = True
        if self._end is not None:
            self._end.is_frozen = True

    def thaw(self) -> None:
        self._is_frozen = False
        if self._end is not None:
            self._end.thaw()

    def _connect(self) -> None:
        if self._is_closed:
            return
        if self._is_frozen:
            self._world.after(0.5, self._connect)
            return
        end = self._setup.knock(self._endpoint, self._label)
        if end is None:
            self._world.after(self._world.random.uniform(0.1, 0.5), self._connect)
            return
        self._end = end
        self._carrier = Zmtp(self._kind, self._identity, dials=True)
        end.on_bytes = partial(self._arrived, end)
        end.on_end = partial(self._over, end)
        self._flush_carrier(end)

    def _arrived(self, end: End, data: bytes) -> None:
        if self._is_closed:
            return
        carrier = self._carrier
        was_ready = carrier.ready
        messages = carrier.feed(data)
        assert carrier.failure is None, carrier.failure
        self._flush_carrier(end)
        if carrier.ready and not was_ready:
            while self._queue:
                end.write(carrier.encode(self._queue.popleft()))
        for message in messages:
            self._heard(message)

    def _flush_carrier(self, end: End) -> None:
        if self._carrier.outgoing:
            end.write(list(self._carrier.outgoing))
            self._carrier.outgoing = []

    def _over(self, end: End, problem: str) -> None:
        end.close()
        if self._is_closed or end is not self._end:
            return
        self._end = None
        if self._ended is None:
            self._world.after(self._world.random.uniform(0.05, 0.3), self._connect)
        else:
            self._is_closed = True
            self._ended()

    def lose_patience(self, end: End) -> None:
        """The kernel's keep-alive: the other side of this connection has vanished."""
        if end is self._end and not self._is_closed:
            end.learn("timed out")

    @property
    def end(self) -> End | None:
        return self._end


class Worker:
    """An honest worker, and what the mutants are made from."""

    is_threaded = False
    carries_over = False
    counts = False  # sends a count with its pings (the second text)

    def __init__(
        self,
        setup: Setup,
        oracle: Oracle,
        name: str,
        *,
        packaged: bool,
        transparent: bool,
        identity: bytes,
        slowest: float,
    ) -> None:
        self.name = name
        self.is_calm = False
        self.is_frozen = False
        self.world: World = setup.world
        self.random = setup.world.random
        self._setup = setup
        self._oracle = oracle
        self._packaged = packaged
        self._transparent = transparent
        self._identity = identity
        self._slowest = slowest
        self._is_dead = False
        self._life = 0  # rises with every restart of the process: timers of an earlier one are void
        self._socket_number = 0
        self._jobs: deque[tuple[int, Message]] = deque()  # (socket it came by, message): the first is being worked at
        self._work = 0  # rises with every piece of work begun or dropped
        self._unread: list[Message] = []  # came while a worker without threads was working
        self._heard_at = 0.0
        self._pings = 0
        self._open_socket()
        self.world.after(self.random.random(), self._tick, self._life)

    @property
    def is_working(self) -> bool:
        return bool(self._jobs)

    @property
    def socket(self) -> Socket:
        return self._socket

    # ---------------------------------------------------------------- what befalls it

    def die(self) -> None:
        self.world.note(self.name, "dies")
        self._is_dead = True
        self._life += 1
        self._socket.die()
        self._drop_work()

    def crash(self, downtime: float) -> None:
        """Die and be started again."""
        if not self._is_dead:
            self.die()
            self.world.after(downtime, self._restart)

    def _restart(self) -> None:
        self._is_dead = self.is_frozen = False
        self._open_socket()
        self.world.after(self.random.random(), self._tick, self._life)

    def freeze(self, seconds: float) -> None:
        if not self.is_frozen and not self._is_dead:
            self.world.note(self.name, f"freezes for {seconds:.3f}")
            self.is_frozen = True
            self._socket.freeze()
            self.world.after(seconds, self.thaw)

    def thaw(self) -> None:
        if self.is_frozen:
            self.is_frozen = False
            self._heard_at = self.world.now  # its own clock stood still
            self._socket.thaw()

    # ---------------------------------------------------------------- the conversation

    def _open_socket(self) -> None:
        self._socket_number += 1
        self._heard_at = self.world.now
        heard = partial(self._receive, self._socket_number)
        ended = None if self._transparent else partial(self._lost, self._socket_number)
        self._socket = Socket(self._setup, BACKEND, "DEALER", self.name, heard, ended, self._identity)
        self._socket.send(READY)

    def reset(self) -> None:
        """Close the socket, open another (the first text, Broker timeout)."""
        self.world.note(self.name, "resets")
        self._socket.close()
        self._unread.clear()
        if not self.carries_over:
            self._drop_work()
        self._open_socket()

    def _lost(self, number: int) -> None:
        if number == self._socket_number and not self._is_dead:
            self._unread.clear()
            if not self.carries_over:
                self._drop_work()
            self.world.after(self.random.uniform(0.05, 0.5), self._reopen, self._life, number)

    def _reopen(self, life: int, number: int) -> None:
        if life == self._life and number == self._socket_number:
            self._open_socket()

    def _tick(self, life: int) -> None:
        if life != self._life:
            return
        self.world.after(PING_EVERY, self._tick, life)
        if self.is_frozen or (self.is_working and not self.is_threaded):
            return
        if self.world.now - self._heard_at >= PATIENCE:
            self.reset()
        else:
            self.say_something()

    def say_something(self) -> None:
        self._pings += 1
        self._socket.send([*PING, b"%d" % self._pings] if self.counts else PING)

    def _receive(self, number: int, message: Message | TooLarge) -> None:
        if number != self._socket_number or self._is_dead:
            return
        assert isinstance(message, list)
        if self.is_working and not self.is_threaded:
            self._unread.append(message)
        else:
            self._heard_at = self.world.now
            self._understand(message)

    def _understand(self, message: Message) -> None:
        assert not message[0], message
        is_job = len(message) == 5 if self._packaged else message[1] != b"PONG"
        if is_job:
            self.take(message)

    # ---------------------------------------------------------------- the work

    def take(self, message: Message) -> None:
        self._jobs.append((self._socket_number, message))
        if len(self._jobs) == 1:
            self._begin()

    def _begin(self) -> None:
        payload = bytes(self._jobs[0][1][1])
        self._oracle.executed(self.name, payload)
        self.world.note(self.name, b"runs " + payload[:16])
        self._work += 1
        self.begin(self._work)

    def begin(self, work: int) -> None:
        seconds = 0.3 if self.is_calm else 0.05 + (self._slowest - 0.05) * self.random.random() ** 3
        self.then(seconds, self._finish, work)

    def then(self, seconds: float, call: Callable[[], None], work: int) -> None:
        """Continue this work in this many seconds, unless it is dropped meanwhile."""
        self.world.after(seconds, self._go_on, call, work)

    def _go_on(self, call: Callable[[], None], work: int) -> None:
        if work == self._work:
            if self.is_frozen:
                self.then(0.1, call, work)
            else:
                call()

    def _finish(self) -> None:
        number, message = self._jobs[0]
        if number == self._socket_number or self.carries_over:
            self.answer(message)
        self._done()

    def answer(self, message: Message) -> None:
        self.send_result(result_of(message[1]), bytes(message[2]) if self._packaged else b"")

    def send_result(self, result: bytes, token: bytes) -> None:
        self._socket.send([b"", b"JOB COMPLETE", token, b"", result] if self._packaged else [b"", result])

    def _done(self) -> None:
        """Free again: what came meanwhile is read now."""
        self._work += 1
        self._jobs.popleft()
        self._heard_at = self.world.now
        if self._jobs:
            self._begin()
        unread, self._unread = self._unread, []
        for message in unread:
            self._receive(self._socket_number, message)

    def _drop_work(self) -> None:
        self._work += 1
        self._jobs.clear()
        self._unread.clear()


class Threaded(Worker):
    """The second text recommends it: a thread does the work, so it continues to ping."""

    is_threaded = True


class Counting(Threaded):
    counts = True


# -------------------------------------------------------------------- mutants that the rules protect against


class Never(Worker):
    """Takes a job, is silent for a while or not at all, and goes back to its loop without an answer."""

    def begin(self, work: int) -> None:
        if self.is_calm or self.random.random() < 0.6:
            super().begin(work)
        else:
            self.then(self.random.choice((0.0, 0.5, 4.0)), self._done, work)


class Late(Worker):
    """Often takes longer than the job may."""

    def begin(self, work: int) -> None:
        if self.is_calm or self.random.random() < 0.5:
            super().begin(work)
        else:
            self.then(self.random.uniform(2.0, 12.0), self._finish, work)


class LateThreaded(Late):
    is_threaded = True


class Resetter(Worker):
    """Opens a new socket in the middle of a job, which it forgets."""

    def begin(self, work: int) -> None:
        if self.is_calm or self.random.random() < 0.6:
            super().begin(work)
        else:
            self.then(self.random.uniform(0.0, 2.0), self.reset, work)


class Repeater(Worker):
    """Sends READY repeatedly while it is idle: one of them may cross a job on the wire."""

    def _tick(self, life: int) -> None:
        super()._tick(life)
        if life == self._life and not self.is_calm:
            for part in range(1, 20):
                self.world.after(part / 20 * PING_EVERY, self._again, life)

    def _again(self, life: int) -> None:
        if life == self._life and not (self.is_frozen or self.is_working):
            self._socket.send(READY)


class Dropper(Worker):
    """Its loop fails in the middle of a job and restarts on the same socket: READY, and no result."""

    def begin(self, work: int) -> None:
        if self.is_calm or self.random.random() < 0.5:
            super().begin(work)
        else:
            self.then(self.random.uniform(0.0, 5.0), self._start_over, work)

    def _start_over(self) -> None:
        self._socket.send(READY)
        self._done()


class Babbler(Worker):
    """Sends messages that are not of this dialect, sometimes so many that it is disconnected (D6)."""

    def say_something(self) -> None:
        super().say_something()
        if not self.is_calm:
            for _ in range(self.random.choice((0, 1, 3, 25))):
                self._socket.send(self.random.choice(([b"PING"], [b"x", b"PING"], [b""] * 9, [b"", b"a", b"b"])))
            self._socket.send(PING)  # and twice within 20 ms (R49)


# -------------------------------------------------------------------- mutants that edition plain cannot see through


class CarriesOver(Threaded):
    """R38, R39: sends its result on the connection that exists when it is done."""

    carries_over = True


class Steady(CarriesOver):
    """It would, too, but stays on its connection as long as it gets its PONG; and it takes its time."""

    def begin(self, work: int) -> None:
        self.then(0.3 if self.is_calm else self.random.uniform(1.0, 9.5), self._finish, work)


class Twice(Worker):
    """Answers, and answers again: at once, or when it may already hold another job."""

    def answer(self, message: Message) -> None:
        super().answer(message)
        if not self.is_calm and self.random.random() < 0.5:
            self.world.after(self.random.choice((0.0, 0.02, 0.5)), self._answer_again, message, self._socket_number)

    def _answer_again(self, message: Message, number: int) -> None:
        if number == self._socket_number and not (self._is_dead or self.is_frozen):
            super().answer(message)


class Mistaken(Twice):
    """Answers with what it computed for another job, under that job's token."""

    def answer(self, message: Message) -> None:
        former = getattr(self, "_former", None)
        if former is not None and not self.is_calm and self.random.random() < 0.3:
            super(Twice, self).answer(former)
        self._former = message
        super(Twice, self).answer(message)


class Impatient(Threaded):
    """Sends READY while it works, as if it were free, and still sends the result."""

    def say_something(self) -> None:
        if self.is_calm or self.random.random() < 0.6:
            super().say_something()
        else:
            self._socket.send(READY)


# -------------------------------------------------------------------- callers


class Caller:
    """Submits jobs, one at a time (REQ) or several at once (DEALER), until it is stopped."""

    def __init__(self, setup: Setup, oracle: Oracle, name: str, *, at_once: int, think: float, largest: int) -> None:
        self.name = name
        self.conversation: Conversation
        self._setup = setup
        self._world = setup.world
        self._oracle = oracle
        self._at_once = at_once
        self._think = think
        self._largest = largest
        self._is_busy = True  # continues to submit
        self._converse()

    @property
    def socket(self) -> Socket:
        return self._socket

    def leave(self) -> None:
        """Close the connection, with any job outstanding (R18, R19), and connect as another caller."""
        self._world.note(self.name, "leaves")
        self._socket.close()
        self._broken(self.conversation)

    def stop(self) -> None:
        self._is_busy = False

    def ask(self) -> None:
        number, payload = self._oracle.new_payload(self._world.random.choice((0, 0, 100, self._largest)))
        self._oracle.submitted(self.conversation, number, payload)
        self._socket.send([b"", payload])

    def _converse(self) -> None:
        conversation = self.conversation = self._oracle.converse(self.name)
        heard = partial(self._receive, conversation)
        ended = partial(self._broken, conversation)
        kind = "REQ" if self._at_once == 1 else "DEALER"
        self._socket = Socket(self._setup, FRONTEND, kind, self.name, heard, ended)
        for _ in range(self._at_once):
            self._plan(conversation)

    def _receive(self, conversation: Conversation, message: Message | TooLarge) -> None:
        self._oracle.answered(conversation, message)
        self._plan(conversation)

    def _plan(self, conversation: Conversation) -> None:
        if self._is_busy:
            self._world.after(self._world.random.expovariate(1 / self._think), self._ask_again, conversation)

    def _ask_again(self, conversation: Conversation) -> None:
        if self._is_busy and not conversation.is_broken:
            self.ask()

    def _broken(self, conversation: Conversation) -> None:
        if not conversation.is_broken:
            conversation.is_broken = True
            self._world.after(self._world.random.uniform(0.1, 1.0), self._converse)
