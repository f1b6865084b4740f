"""The broker's host in the simulation: server/asyncio_host.py for simulated pipes instead of sockets.

A `Life` is one run of the broker from start to crash: a Runner with its Broker and broker side, fed real bytes through
a real Zmtp object per connection. An iteration happens at once when the runner requests one (`wake`), and at the time
that the last iteration returned. `Setup` outlives crashes: it is the address to which actors connect.

A *paused* life (D13) does nothing while bytes and connections queue up. When it continues, some sockets may be read
before the iteration that notices the pause and some after it: a real loop guarantees no order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from dragoman.carriers.carrier import Carrier
from dragoman.carriers.zmtp import Zmtp
from dragoman.core.broker import Broker
from dragoman.core.invariants import check
from dragoman.core.policy import Policy
from dragoman.core.states import JobState
from dragoman.dialects.frontend import FRONTEND
from dragoman.dialects.pingpong.broker_side import PingPongBrokerSide
from dragoman.dialects.pingpong.options import ListenerOptions
from dragoman.server.admission import AdmissionLimits
from dragoman.server.connection import StreamConnection
from dragoman.server.event_log import EventLog
from dragoman.server.runner import Runner
from dragoman.store.null import NullStore
from dragoman.testing.entropy import SeededEntropy
from sim.oracle import Oracle, WatchedSession
from sim.pipes import End, Weather, Wire
from sim.world import World

MAX_PAYLOAD = 1 << 20
MOST = 2  # messages of a connection at once; the others wait for another turn
BETWEEN_PAUSES = 0.5  # seconds at least: without them two short pauses would be a long one


@dataclass(frozen=True, slots=True)
class Kinds:
    """The classes a life is made of; the planted bugs put others in their place."""

    broker: type[Broker] = Broker
    session: type[WatchedSession] = WatchedSession


class Setup:
    def __init__(self, world: World, weather: Weather, options: ListenerOptions, oracle: Oracle, kinds: Kinds) -> None:
        self.world = world
        self.weather = weather
        self.oracle = oracle
        self.wires: list[Wire] = []
        self._options = options
        self._kinds = kinds
        self._first_worker = 1
        self._touched: Life | None = None
        self.life: Life | None = None
        world.after_event = self._look

    def open(self) -> None:
        """Start the broker, unless it runs."""
        if self.life is None:
            self.world.note("broker", "start")
            self.life = self.new_life(self._first_worker)

    def new_life(self, first_worker: int) -> Life:
        return Life(self, self._options, self._kinds, first_worker)

    def crash(self, downtime: float) -> None:
        """The process dies; its peers see their connections end."""
        life = self.life
        if life is None:
            return
        self.world.note("broker", "crash")
        if any(job.state is JobState.RUNNING for job in life.broker.jobs.values()):
            self.oracle.hit("broker crashed with jobs running")
        self.life, life.is_alive = None, False
        self._first_worker = life.broker.worker_registry.next_id()
        self.oracle.life_ended(life.broker)
        for wire in self.wires:
            wire.cut()
        self.world.after(downtime, self.open)

    def knock(self, endpoint: str, label: str) -> End | None:
        """Connect as an actor. Returns its end of a new wire, or None while the broker does not listen."""
        life = self.life
        if life is None:
            return None
        wire = Wire(self.world, self.weather, label)
        if len(self.wires) > 40:
            self.wires = [each for each in self.wires if each.is_whole]
        self.wires.append(wire)
        when = self.world.now + self.weather.latency(self.world)
        wire.actor.hold_until(when)
        self.world.after(when - self.world.now, life.accept, endpoint, wire)
        return wire.actor

    def touched(self, life: Life) -> None:
        """Something happened to the broker in this event."""
        self._touched = life

    def _look(self) -> None:
        """After every event that reached the broker: everything that must always hold, holds."""
        life, self._touched = self._touched, None
        if life is not None:
            check(life.broker)


class Life:
    def __init__(self, setup: Setup, options: ListenerOptions, kinds: Kinds, first_worker: int) -> None:
        world = setup.world
        self.is_alive = True
        self.is_paused = False
        self.pause_next: float | None = None  # length of a pause at the next job: before its iteration, or right after
        self.pauses_before = False
        self._setup = setup
        self._world = world
        self._ends: dict[End, None] = {}
        self._waiting: list[tuple[str, Wire]] = []  # knocked during a pause
        self._ended_late: list[tuple[StreamConnection, End, str]] = []  # read just before a pause, not yet reported
        self._resumed = 0.0
        self._timer_due = 0.0
        self._timer_number = 0
        self.broker = kinds.broker(Policy(), SeededEntropy(world.random.random().hex()), first_worker=first_worker)
        self.runner = Runner(self.broker, NullStore(), lambda: world.now, self._log, AdmissionLimits(), wake=self._wake)
        EventLog(self.broker.events, self._log, drain_timeout=30.0)
        self.session: PingPongBrokerSide = kinds.session(
            setup.oracle, self.broker, self.runner.connections, options, MAX_PAYLOAD, world
        )
        self.runner.sessions.append(self.session)
        self._wake()

    # ---------------------------------------------------------------- turns

    def _wake(self) -> None:
        self._world.soon(self._turn)

    def _turn(self) -> None:
        if not self.is_alive or self.is_paused:
            return
        self._setup.touched(self)
        given = self._setup.oracle.gives_said
        due = self.runner.run_once()
        if not self._timer_number or due < self._timer_due:
            self._timer_due = due
            self._timer_number += 1
            self._world.at(due, self._timed_iteration, self._timer_number)
        if self._setup.oracle.gives_said > given:
            self._maybe_pause()

    def _timed_iteration(self, number: int) -> None:
        if number == self._timer_number and self.is_alive and not self.is_paused:
            self._timer_due = float("inf")
            self._turn()

    # ---------------------------------------------------------------- pauses of the broker

    def _maybe_pause(self) -> None:
        if self.pause_next is not None:
            gap, self.pause_next = self.pause_next, None
            self.pause(gap)

    def pause(self, seconds: float) -> None:
        if not self.is_alive or self.is_paused or self._world.now < self._resumed + BETWEEN_PAUSES:
            return
        self._world.note("broker", f"pause {seconds:.3f}")
        self.is_paused = True
        self._ends = {end: None for end in self._ends if not end.is_closed}
        for end in self._ends:
            end.is_frozen = True
        self._world.after(seconds, self.resume)

    def resume(self) -> None:
        if not self.is_alive or not self.is_paused:
            return
        self._world.note("broker", "resume")
        self._setup.touched(self)
        self.is_paused = False
        self._resumed = self._world.now
        self._timer_due = float("inf")
        ends = list(self._ends)
        self._world.random.shuffle(ends)
        first = self._world.random.choice((0, len(ends) // 2, len(ends)))
        for end in ends[:first]:
            end.thaw()
        self._turn()
        for end in ends[first:]:
            end.thaw()
        ended, self._ended_late = self._ended_late, []
        for each in ended:
            self._ended(*each)
        waiting, self._waiting = self._waiting, []
        for endpoint, wire in waiting:
            self.accept(endpoint, wire)

    # ---------------------------------------------------------------- connections

    def accept(self, endpoint: str, wire: Wire) -> None:
        end = wire.broker
        if wire.is_cut:
            return
        if self.is_paused:
            end.is_frozen = True
            self._waiting.append((endpoint, wire))
            return
        self._setup.touched(self)
        carrier = self.new_carrier()
        carrier.most = MOST
        peer = self.runner.connections.connected(self.session, endpoint, carrier, end, end.label, self.address_of(end))
        self._ends[end] = None
        end.on_bytes = partial(self._arrived, peer, carrier)
        end.on_end = partial(self._ended, peer, end)
        if end.is_frozen:
            end.thaw()

    def new_carrier(self) -> Carrier:
        return Zmtp("ROUTER")

    def address_of(self, end: End) -> str:
        return end.label

    def _arrived(self, peer: StreamConnection, carrier: Carrier, data: bytes) -> None:
        if self.is_alive:
            self._setup.touched(self)
            has_rest = bool(carrier.rest)
            messages = carrier.feed(data)
            if peer.socket_name == FRONTEND and peer.closing is None:
                self._setup.oracle.frontend_heard(self.broker, len(messages))
            self.runner.connections.arrived(peer, messages)
            if carrier.rest and not has_rest:
                self._world.soon(self._take_turn, peer, carrier)
            if self.pauses_before and self.broker.effects:
                self._maybe_pause()

    def _take_turn(self, peer: StreamConnection, carrier: Carrier) -> None:
        """Continue with undecoded bytes, as `streams/turn.py` does in a later iteration."""
        if self.is_paused:
            self._world.after(BETWEEN_PAUSES, self._take_turn, peer, carrier)
        elif carrier.rest:
            self._setup.oracle.hit("messages waited for another turn")
            self._arrived(peer, carrier, b"")
            if carrier.rest:
                self._world.soon(self._take_turn, peer, carrier)

    def _ended(self, peer: StreamConnection, end: End, problem: str) -> None:
        if self.is_paused:
            self._ended_late.append((peer, end, problem))
        elif self.is_alive:
            self._setup.touched(self)
            self._ends.pop(end, None)
            while peer.carrier.rest:
                self._arrived(peer, peer.carrier, b"")
            self.runner.connections.ended(peer, problem)

    def _log(self, level: str, event: str, **fields: Any) -> None:
        self._world.note("log", (event, {name: str(value) for name, value in fields.items()}))
        self._setup.oracle.remarked(event, fields)
