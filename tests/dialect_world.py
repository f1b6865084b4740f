"""The test world of all dialects: a session on the real runner, streams without sockets, and time as a number.

A dialect's `world.py` adds its vocabulary: how its peers say hello, how they read an answer, and what must hold in its
session's books. Everything that must hold is checked after every turn.
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
    """One broker, its runner, and one session. `now` is the time, and only `wait` and `late` move it."""

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
        """`strict`: the runner checks the broker after every step, which takes long with a thousand jobs."""
        self.now = now
        self.entropy = SeededEntropy(entropy) if isinstance(entropy, str) else entropy
        self.policy = policy or Policy()
        self.limits = limits or AdmissionLimits()
        self.remarks: list[tuple[str, str, dict[str, Any]]] = []
        self.errors: list[Exception] = []
        self._strict = strict
        self.begin()

    def begin(self) -> None:
        """A broker that knows nobody. What was connected to the one before is cut off."""
        self.ends: list[Any] = []  # connections that are open, as their other ends have them
        self.dials: list[tuple[StreamConnection, Any]] = []  # what the session has dialled, and nobody has answered
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
        """A connection comes in, and its carrier greets."""
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
        """The session dials. `move` decides what comes of it."""
        self.dials.append((peer, place))

    # ---------------------------------------------------------------- what to look at

    def job(self) -> Job:
        """The only job that is present."""
        (job,) = self.broker.jobs.values()
        return job

    @property
    def present(self) -> int:
        """How many jobs are present."""
        return len(self.broker.jobs)

    @property
    def workers(self) -> int:
        return len(self.broker.worker_registry.workers)

    @property
    def bad(self) -> dict[str, int]:
        """Bad messages by their reasons."""
        dialect = self.session.dialect  # type: ignore[attr-defined]
        assert all(each == dialect for each, _ in self.counters.bad_messages)
        return {reason: count for (_, reason), count in self.counters.bad_messages.items()}

    @property
    def ended(self) -> dict[str, int]:
        """Jobs by their outcomes."""
        return {str(outcome): count for outcome, count in self.counters.ended.items() if count}

    def remarked(self, event: str) -> list[dict[str, Any]]:
        """The fields of each log line about this event."""
        return [said for _, each, said in self.remarks if each == event]

    # ---------------------------------------------------------------- time and turns

    def run_once(self) -> float:
        """Turns of the loop until nothing moves any more. Returns when the next is due."""
        while True:
            due = self.runner.run_once()
            self.judge()
            if not self.move():
                break
        self.ends = [end for end in self.ends if not end.is_over]
        self.check()
        return due

    def move(self) -> bool:
        """What the peers' libraries do by themselves. Tells whether anything moved."""
        moved = [end.pump() for end in list(self.ends)]
        return any(moved)

    def wait(self, seconds: float) -> None:
        """Time passes, and the loop turns whenever it should."""
        until = self.now + seconds
        while (due := self.run_once()) <= until:
            self.now = max(self.now, due)
            self.pass_time()
        self.now = until
        self.run_once()

    def pass_time(self) -> None:
        """For those who do something of their own while time passes."""

    def late(self, seconds: float) -> None:
        """Time passes, and the loop turns only at its end."""
        self.now += seconds
        self.run_once()

    # ---------------------------------------------------------------- what must hold

    def judge(self) -> None:
        """Raises what went wrong inside, which the runner only logs. A strict runner checks the broker's invariants
        itself, after every message and every turn."""
        if self.errors:
            raise self.errors[0]
        if not self._strict:
            check(self.broker)

    def check(self) -> None:
        """The broker's invariants and the session's own books, when nothing moves any more."""
        self.judge()
        assert not self.broker.effects
        self.check_books()

    def check_books(self) -> None:
        """What must hold between the session's records and the broker's."""
        raise NotImplementedError

    def _log(self, level: str, event: str, **fields: Any) -> None:
        self.remarks.append((level, event, fields))
        if event == "internal error":
            self.errors.append(fields["exception"])


class End:
    """One connection, as its other end has it: bytes go in and come out."""

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
        """Bytes come from it, and the turn of the loop is not over yet."""
        self.world.connections.arrived(self.peer, self.peer.carrier.feed(data))
        self.world.judge()

    def cut(self) -> None:
        """The connection is gone. What its stream had no room for never left."""
        self.world.connections.ended(self.peer, "reset")
        self.world.run_once()

    def stop_reading(self) -> None:
        """The kernel takes nothing more from us."""
        self.stream.room = 0


EndT = TypeVar("EndT", bound=End)


class ZmtpEnd(End):
    """The same for a socket of some ZeroMQ library."""

    def __init__(self, world: Any, carrier: Zmtp) -> None:
        super().__init__(world)
        self.carrier = carrier
        self.is_frozen = False  # it does not even greet
        self.inbox: list[list[bytes]] = []  # messages that nobody has looked at
        self._ahead = 0  # bytes of what its carrier has to say that were said already

    def pump(self) -> bool:
        """What a library does by itself: read, greet, answer life signs. Tells whether anything moved."""
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
        """All that it says in a handshake comes in one read. `rehearsal` and `other`, of the kinds that will meet here,
        show what that is."""
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
        """It says a message of these frames, and the turn of the loop is not over yet."""
        assert not self.is_over, "nobody is there to say it to"
        self.feed(b"".join(self.carrier.encode(frames)))

    def messages(self) -> list[list[bytes]]:
        """What it was told since it last looked."""
        told, self.inbox = self.inbox, []
        return told
