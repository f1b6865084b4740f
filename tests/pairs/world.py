"""A broker with listeners of every dialect and no sockets: real carriers on both ends of each connection, and a clock
that only `wait` moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dragoman.carriers.carrier import Carrier, Frame, Message
from dragoman.carriers.zmtp_curve import CurveZmtp, zmtp_carrier
from dragoman.core.broker import Broker
from dragoman.core.model import Job
from dragoman.core.policy import Policy
from dragoman.server.admission import AdmissionLimits
from dragoman.server.authentication import Admitted, ListenerAuth
from dragoman.server.connection import StreamConnection
from dragoman.server.runner import Runner
from dragoman.server.wiring import prepare
from dragoman.store.null import NullStore
from dragoman.streams.byte_stream import ByteStream
from dragoman.testing.entropy import SeededEntropy

SERVICE = "translate"


class World:
    def __init__(self, *, strict: bool = True) -> None:
        """`strict` checks all invariants after every step."""
        self.now = 1000.0
        self.broker = Broker(Policy(), SeededEntropy())
        self.counters = self.broker.counters
        self.runner = Runner(
            self.broker,
            NullStore(),
            lambda: self.now,
            self._log,
            AdmissionLimits(),
            dialler=self._note_dial,
            strict=strict,
        )
        self.admitted: Admitted | None = None  # principal of new connections; None: the broker's own user
        self.curve: ListenerAuth | None = None  # proves the principals of connections whose carriers have CURVE
        self.lines: list[tuple[str, dict[str, Any]]] = []  # of the log
        self.may_fail = False  # a fault of the broker is what the test is about
        self.connections: list[Connection] = []
        self.places: dict[str, Callable[[], Carrier]] = {}  # where workers listen, and what they speak there
        self.dialled: dict[str, list[Dialled]] = {}  # the connections that were made to each
        self._dials: list[tuple[StreamConnection, str]] = []
        self._listeners: dict[str, dict[str, Any]] = {}

    def listener(self, url: str, who: str) -> Any:
        """Return the socket of this listener for workers or callers; the first call opens the listener."""
        if url not in self._listeners:
            self._listeners[url] = dict(prepare(url, self.broker, self.runner).sockets)
        return self._listeners[url].get(who) or self._listeners[url]["both"]

    def connect(self) -> None:
        """Complete or fail the dials of the broker."""
        while self._dials:
            peer, place = self._dials.pop(0)
            if place in self.places:
                self.dialled.setdefault(place, []).append(Dialled(self, peer, self.places[place]()))
            else:
                self.runner.connections.host_access.dialled(peer, None, "connection refused")
        self.runner.run_once()

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while (due := self.runner.run_once()) <= until:
            for connection in self.connections:
                connection.live()
            self.now = due
        self.now = until
        self.runner.run_once()

    def only_job(self) -> Job:
        (job,) = self.broker.jobs.values()
        return job

    def _note_dial(self, peer: StreamConnection, place: object) -> None:
        self._dials.append((peer, str(place)))

    def _log(self, level: str, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))
        assert level != "error" or self.may_fail, (event, fields)


class Connection(ByteStream):
    """The remote end of a connection to a listener socket: messages go in and come out."""

    def __init__(self, world: World, listener: Any, carrier: Carrier, address: str = "127.0.0.1") -> None:
        auth = world.curve if isinstance(carrier, CurveZmtp) else None
        theirs = listener.carrier() if auth is None else zmtp_carrier("ROUTER", security=auth.security())
        self._begin(world, carrier, theirs)
        self._peer = world.runner.connections.connected(
            listener.session,
            listener.socket_name,
            self._theirs,
            self,
            address,
            address,
            listener.limits,
            admitted=world.admitted,
            auth=auth,
        )
        self._greet()

    def live(self) -> None:
        """Send what a library sends by itself: greetings, and replies to the carrier's heartbeats."""
        outgoing, self._ours.outgoing = self._ours.outgoing, []
        if outgoing and not self.is_cut:
            self._pass_on(outgoing)

    def say(self, *frames: Frame) -> None:
        self._pass_on(self._ours.encode(frames))
        self.world.runner.run_once()

    def take(self) -> list[Message]:
        """Return the messages received since the last call."""
        heard, self.heard = self.heard, []
        return heard

    def cut(self) -> None:
        self.is_cut = True
        self.world.runner.connections.ended(self._peer, "cut")
        self.world.runner.run_once()

    def _pass_on(self, buffers: Sequence[Frame]) -> None:
        assert not self.is_cut
        data = b"".join(buffers)
        if data:
            self.world.runner.connections.arrived(self._peer, self._theirs.feed(data))

    def _begin(self, world: World, ours: Carrier, theirs: Carrier) -> None:
        self.world = world
        self.sent = self.received = self.backlog = 0  # the broker's stream: all that is written has left
        self.closed_in_order = False
        self.heard: list[Message] = []
        self.is_cut = False
        self._ours = ours
        self._theirs = theirs
        world.connections.append(self)

    def _greet(self) -> None:
        while not (self._ours.ready and self._theirs.ready) and not self.is_cut:
            self.world.runner.run_once()
            self.live()
        self.world.runner.run_once()

    # ---------------------------------------------------------------- what the line asks of a stream

    def write(self, buffers: list[Frame]) -> None:
        data = b"".join(buffers)
        self.sent += len(data)
        for message in self._ours.feed(data):
            assert isinstance(message, list)
            self.heard.append([bytes(frame) for frame in message])

    def close(self) -> None:
        self.is_cut = True

    def read_dry(self) -> bool:
        return not self.is_cut

    def unread(self) -> int:
        return 0


class Dialled(Connection):
    """The remote end of a connection that the broker has dialled."""

    def __init__(self, world: World, peer: StreamConnection, carrier: Carrier) -> None:
        self._begin(world, carrier, peer.carrier)
        self._peer = peer
        world.runner.connections.host_access.dialled(peer, self)
        self._greet()
