"""Test world of all dialects: a broker side on the real runner, streams without sockets, and time as a number.

The `world.py` of a dialect adds its messages: how its clients and workers connect, how they read answers, and the
invariants of its broker side. All invariants are checked after every iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from dragoman.carriers.carrier import Carrier
from dragoman.carriers.zmtp import Zmtp
from dragoman.core.broker import Broker
from dragoman.core.invariants import check
from dragoman.core.model import Job
from dragoman.core.policy import Policy
from dragoman.dialects.interface import BrokerSide
from dragoman.server.admission import AdmissionLimits
from dragoman.server.connection import StreamConnection
from dragoman.server.connection_limits import ConnectionLimits
from dragoman.server.event_log import EventLog
from dragoman.server.runner import Runner
from dragoman.store.null import NullStore
from dragoman.testing.entropy import SeededEntropy
from fake_stream import FakeStream

HOME = "192.0.2.1"


class DialectWorld:
    """One broker, its runner, and one broker side. `now` is the time; only `wait` and `late` advance it."""

    session: BrokerSide

    def __init__(
        self,
        entropy: SeededEntropy | str,
        *,
        policy: Policy | None = None,
        limits: AdmissionLimits | None = None,
        strict: bool = True,
        now: float = 10_000.0,
    ) -> None:
        """`strict`: the runner checks the broker after every step, which is slow with a thousand jobs."""
        self.now = now
        self.entropy = SeededEntropy(entropy) if isinstance(entropy, str) else entropy
        self.policy = policy or Policy()
        self.limits = limits or AdmissionLimits()
        self.remarks: list[tuple[str, str, dict[str, Any]]] = []
        self.errors: list[Exception] = []
        self._strict = strict
        self.begin()

    def begin(self) -> None:
        """Start a new broker without connections. Connections of the earlier one are cut."""
        self.ends: list[Any] = []  # remote ends of the open connections
        self.dials: list[tuple[StreamConnection, Any]] = []  # dialled connections that are still pending
        self._connected = 0
        self.broker = Broker(self.policy, self.entropy)
        self.counters = self.broker.counters
        self.store = NullStore()
        self.runner = Runner(
            self.broker,
            self.store,
            lambda: self.now,
            self._log,
            self.limits,
            dialler=self.dial,
            strict=self._strict,
        )
        self.connections = self.runner.connections
        EventLog(self.broker.events, self._log, drain_timeout=30.0)

    def serve(self, session: BrokerSide) -> None:
        self.runner.sessions.append(session)
        self.run_once()

    def accept(self, end: EndT, endpoint: str, carrier: Carrier, address: str = HOME, process: int = 0) -> EndT:
        """Accept a connection; its carrier sends the greeting."""
        self._connected += 1
        end.peer = self.connections.connected(
            self.session,
            endpoint,
            carrier,
            end.stream,
            f"peer-{self._connected}",
            address,
            ConnectionLimits(),
            process=process,
        )
        self.ends.append(end)
        return end

    def dial(self, peer: StreamConnection, place: object) -> None:
        """Record a dial of the broker side. `move` decides its result."""
        self.dials.append((peer, place))

    # ---------------------------------------------------------------- what to look at

    def job(self) -> Job:
        """Return the only job."""
        (job,) = self.broker.jobs.values()
        return job

    @property
    def present(self) -> int:
        """Return the number of jobs."""
        return len(self.broker.jobs)

    @property
    def workers(self) -> int:
        return len(self.broker.worker_registry.workers)

    @property
    def bad(self) -> dict[str, int]:
        """Return the numbers of bad messages by reason."""
        dialect = self.session.dialect  # type: ignore[attr-defined]
        assert all(each == dialect for each, _ in self.counters.bad_messages)
        return {reason: count for (_, reason), count in self.counters.bad_messages.items()}

    @property
    def ended(self) -> dict[str, int]:
        """Return the numbers of ended jobs by outcome."""
        return {str(outcome): count for outcome, count in self.counters.ended.items() if count}

    def remarked(self, event: str) -> list[dict[str, Any]]:
        """Return the fields of each log line about this event."""
        return [said for _, each, said in self.remarks if each == event]

    # ---------------------------------------------------------------- time and turns

    def run_once(self) -> float:
        """Run iterations of the loop until nothing changes. Returns the time of the next one."""
        while True:
            due = self.runner.run_once()
            self.judge()
            if not self.move():
                break
        self.ends = [end for end in self.ends if not end.is_over]
        self.check()
        return due

    def move(self) -> bool:
        """Do what the libraries of clients and workers do by themselves. Returns whether anything changed."""
        moved = [end.pump() for end in list(self.ends)]
        return any(moved)

    def wait(self, seconds: float) -> None:
        """Advance the time, and run every iteration that is due."""
        until = self.now + seconds
        while (due := self.run_once()) <= until:
            self.now = max(self.now, due)
            self.pass_time()
        self.now = until
        self.run_once()

    def pass_time(self) -> None:
        """Hook for subclasses that act while time passes."""

    def late(self, seconds: float) -> None:
        """Advance the time, and run one iteration at the end only."""
        self.now += seconds
        self.run_once()

    # ---------------------------------------------------------------- what must hold

    def judge(self) -> None:
        """Raise internal errors that the runner only logs. A strict runner checks the broker's invariants itself, after
        every message and every iteration."""
        if self.errors:
            raise self.errors[0]
        if not self._strict:
            check(self.broker)

    def check(self) -> None:
        """Check the invariants of the broker and of the broker side, when nothing changes any more."""
        self.judge()
        assert not self.broker.effects
        self.check_books()

    def check_books(self) -> None:
        """Check that the records of the broker side agree with the broker."""
        raise NotImplementedError

    def _log(self, level: str, event: str, **fields: Any) -> None:
        self.remarks.append((level, event, fields))
        if event == "internal error":
            self.errors.append(fields["exception"])


class End:
    """The remote end of one connection: bytes go in and come out."""

    peer: StreamConnection

    def __init__(self, world: Any) -> None:
        self.world = world
        self.stream = FakeStream()

    @property
    def is_over(self) -> bool:
        return self.stream.is_closed

    def pump(self) -> bool:
        return False

    def feed(self, data: bytes) -> None:
        """Send bytes from the remote end; the iteration of the loop has not ended."""
        self.world.connections.arrived(self.peer, self.peer.carrier.feed(data))
        self.world.judge()

    def cut(self) -> None:
        """Cut the connection. Bytes that its stream did not accept never left."""
        self.world.connections.ended(self.peer, "reset")
        self.world.run_once()

    def stop_reading(self) -> None:
        """Stop reading: the kernel accepts no more bytes from the broker."""
        self.stream.room = 0


EndT = TypeVar("EndT", bound=End)


class ZmtpEnd(End):
    """The remote end of a connection to a ZeroMQ socket."""

    def __init__(self, world: Any, carrier: Zmtp) -> None:
        super().__init__(world)
        self.carrier = carrier
        self.is_frozen = False  # it sends no greeting
        self.inbox: list[list[bytes]] = []  # unread messages
        self._ahead = 0  # number of the carrier's bytes that were already sent

    def pump(self) -> bool:
        """Do what a library does by itself: read, send the greeting, answer PINGs. Returns whether anything changed."""
        if self.is_frozen or not (self.stream.taken or self.carrier.outgoing):
            return False
        taken, self.stream.taken = self.stream.taken, bytearray()
        for message in self.carrier.feed(bytes(taken)) if taken else ():
            assert isinstance(message, list)
            self.inbox.append([bytes(frame) for frame in message])
        outgoing, self.carrier.outgoing = b"".join(self.carrier.outgoing), []
        said_ahead = min(self._ahead, len(outgoing))
        self._ahead -= said_ahead
        if len(outgoing) > said_ahead and not self.is_over:
            self.feed(outgoing[said_ahead:])
        return bool(taken or outgoing)

    def greet_ahead(self, rehearsal: Zmtp, other: Zmtp) -> None:
        """Send the whole handshake in one piece. `rehearsal` and `other`, ends of the same kinds, provide its bytes."""
        said = b""
        while not other.ready:
            spoken, rehearsal.outgoing = b"".join(rehearsal.outgoing), []
            said += spoken
            other.feed(spoken)
            rehearsal.feed(b"".join(other.outgoing))
            other.outgoing = []
        self._ahead = len(said)
        self.feed(said)

    def send(self, frames: Sequence[bytes]) -> None:
        """Send a message of these frames; the iteration of the loop has not ended."""
        assert not self.is_over, "nobody is there to say it to"
        self.feed(b"".join(self.carrier.encode(frames)))

    def messages(self) -> list[list[bytes]]:
        """Return the messages received since the last call."""
        told, self.inbox = self.inbox, []
        return told
