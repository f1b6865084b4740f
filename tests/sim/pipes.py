"""Byte pipes between two ends, with latency, small windows, freezes and cuts.

A `Wire` is one connection. Each `End` is a `Stream` as the runner knows it (server/connection.py); actors use the same.

- Bytes of one direction arrive in order, each piece after a latency of its own; a piece never overtakes another.
- `window` is what the kernels of both sides hold together: bytes sent and not yet read. More is `backlog`.
- A frozen end does not read: bytes that arrive wait, as in a kernel's buffer, until `thaw` or `read_dry`.
- `close` is orderly: bytes already sent still arrive, and after them the end.
- `cut` is not: bytes in transit and unread bytes are lost. Both ends learn of it a latency later, or, if it was
  *silent* (a cable, a dead host), neither does, and bytes written afterwards fill the window and stay there.
- A `fuse` cuts at a certain byte: this many more arrive at this end, and with the last of them the connection is cut.
- An end that has learned of a cut takes nothing more: those bytes count as backlog, because they were never sent (D8).

As with a real socket, the owner of an end is notified of its end in an event of its own, and never within a call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dragoman.streams.byte_stream import ByteStream
from sim.world import World

Frame = bytes | bytearray

CLOSED = "the peer closed the connection"


@dataclass(slots=True)
class Weather:
    """The state of the network."""

    slow: float = 0.0  # probability that a piece takes up to `slowest` seconds
    slowest: float = 2.5
    splits: float = 0.0  # probability that a piece arrives in two parts
    window: int = 1 << 20

    def latency(self, world: World) -> float:
        if self.slow and world.chance(self.slow):
            return round(world.random.uniform(0.05, self.slowest), 3)  # on the grid, or pieces overtake
        return world.random.randint(1, 8) / 1000

    def calm_down(self) -> None:
        self.slow = self.splits = 0.0


class Wire:
    def __init__(self, world: World, weather: Weather, label: str) -> None:
        self.world = world
        self.weather = weather
        self.is_cut = False
        self.actor = End(self, f"{label}<")  # arrows: what arrives here comes from the broker
        self.broker = End(self, f"{label}>")
        self.actor.other, self.broker.other = self.broker, self.actor

    @property
    def is_whole(self) -> bool:
        return not (self.is_cut or self.actor.is_closed or self.broker.is_closed)

    def cut(self, *, silently: bool = False) -> None:
        if self.is_cut:
            return
        self.is_cut = True
        self.world.note(self.actor.label, "cut silently" if silently else "cut")
        for end in (self.actor, self.broker):
            end.inbox.clear()
            if not silently:
                self.world.after(self.weather.latency(self.world), end.learn, "the connection was reset")


class End(ByteStream):
    """One side of a connection: a stream to write on, and what arrives there."""

    other: End

    def __init__(self, wire: Wire, label: str) -> None:
        self.wire = wire
        self.label = label
        self.sent = 0
        self.received = 0
        self.backlog = 0
        self.is_closed = False  # by its owner
        self.is_over = False  # it knows that nothing more comes
        self.closed_in_order = False  # by the other side, which has read all that was sent from here
        self.is_frozen = False
        self.fuse: int | None = None  # cut after this many more bytes have arrived here
        self.inbox: list[bytes | str] = []  # arrived while frozen; a str is the news of the end
        self.on_bytes: Callable[[bytes], None] = lambda data: None
        self.on_end: Callable[[str], None] = lambda problem: None
        self._pending = bytearray()
        self._unread = 0  # bytes sent that the other side has not read yet
        self._last_arrival = 0.0
        self._low = -1
        self._when_low: Callable[[], None] = lambda: None

    # ---------------------------------------------------------------- the Stream protocol

    def write(self, buffers: list[Frame]) -> None:
        if self.is_closed:
            return
        if self.is_over:
            self.closed_in_order = False
        for buffer in buffers:
            self._pending += buffer
        self._push()

    def when_low(self, mark: int, call: Callable[[], None]) -> None:
        self._low, self._when_low = mark, call

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._pending.clear()
        self.inbox.clear()
        if not self.wire.is_cut:
            self._travel(self.other.arrive, CLOSED)

    def read_dry(self) -> bool:
        inbox, self.inbox = self.inbox, []
        for piece in inbox:
            self._read(piece)
        return not (self.is_over or self.is_closed)

    def unread(self) -> int:
        return 0  # there is no kernel that could report it

    # ---------------------------------------------------------------- what befalls it

    def hold_until(self, when: float) -> None:
        """Nothing that is sent from here arrives before `when`: the connection is still being made."""
        self._last_arrival = when

    def thaw(self) -> None:
        self.is_frozen = False
        self.read_dry()

    def arrive(self, piece: bytes | str) -> None:
        if self.wire.is_cut or self.is_closed:
            return
        is_last = False
        if self.fuse is not None and isinstance(piece, bytes):
            is_last = len(piece) >= self.fuse
            piece = piece[: self.fuse]
            self.fuse -= len(piece)
        if self.is_frozen:
            self.inbox.append(piece)
        elif piece:
            self._read(piece)
        if is_last:
            self.wire.cut()

    def learn(self, problem: str) -> None:
        """Learn that the connection has ended. The owner is notified in an event of its own."""
        if self.is_frozen:
            self.inbox.append(problem)
        elif not (self.is_over or self.is_closed):
            self.is_over = True
            self.closed_in_order = problem == CLOSED and not self._pending and not self._unread
            self.wire.world.soon(self._tell, problem)

    def _tell(self, problem: str) -> None:
        if not self.is_closed:
            self.on_end(problem)

    def _read(self, piece: bytes | str) -> None:
        if isinstance(piece, str):
            self.learn(piece)
        elif not (self.is_over or self.is_closed):
            self.wire.world.note(self.label, piece)
            self.other._unread -= len(piece)
            self.received += len(piece)
            self.on_bytes(piece)
            if self.other._pending:
                self.other._push()

    def _push(self) -> None:
        """Hand to the kernel what it takes."""
        pending = self._pending
        room = 0 if self.is_over else self.wire.weather.window - self._unread
        if room > 0 and pending:
            piece = bytes(pending[:room])
            del pending[:room]
            self.sent += len(piece)
            self._unread += len(piece)
            if not self.wire.is_cut:
                self._dispatch(piece)
        self.backlog = len(pending)
        if self.backlog <= self._low:
            self._low = -1
            self._when_low()

    def _dispatch(self, piece: bytes) -> None:
        world = self.wire.world
        if len(piece) > 1 and world.chance(self.wire.weather.splits):
            middle = world.random.randrange(1, len(piece))
            self._travel(self.other.arrive, piece[:middle])
            piece = piece[middle:]
        self._travel(self.other.arrive, piece)

    def _travel(self, arrive: Callable[[bytes | str], None], piece: bytes | str) -> None:
        world = self.wire.world
        when = max(self._last_arrival, world.now + self.wire.weather.latency(world))
        self._last_arrival = when
        world.after(when - world.now, arrive, piece)
