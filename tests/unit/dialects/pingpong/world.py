"""A small scripted world: one PingPong session, a real broker, a line that only records, and time as a number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import pytest

from dragoman.carriers.carrier import TooLarge
from dragoman.core.broker import Broker
from dragoman.core.effects import Give
from dragoman.core.invariants import check
from dragoman.core.model import Caller, Job, Worker
from dragoman.core.owners import Owner
from dragoman.core.policy import Policy
from dragoman.core.states import JobState
from dragoman.dialects.frontend import FRONTEND
from dragoman.dialects.pingpong.editions import Edition
from dragoman.dialects.pingpong.options import ListenerOptions
from dragoman.dialects.pingpong.session import BACKEND, Guest, PingPongSession
from dragoman.testing.entropy import SeededEntropy

READY, PING, PONG, EXIT = b"READY", b"PING", b"PONG", b"EXIT"
DISCONNECT, JOB_COMPLETE = b"DISCONNECT", b"JOB COMPLETE"

MAX_PAYLOAD = 1_000


class FakePeer(Caller):
    """One connection's other end, with what it was told and has not yet looked at."""

    def __init__(self, session: PingPongSession, endpoint: str, identity: bytes, label: str) -> None:
        super().__init__(session)
        self.session = session
        self.endpoint = endpoint
        self.identity = identity
        self.label = label
        self.guest: Any = None
        self.owner = Owner()
        self.inbox: list[list[bytes]] = []
        self.closed: str | None = None  # why, once the session has asked for it
        self.is_lost = False

    def told(self) -> list[list[bytes]]:
        """What it was told since it last looked, without the delimiter."""
        told, self.inbox = self.inbox, []
        return told


class RecordingLine:
    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.closing: list[FakePeer] = []
        self.bad: list[str] = []
        self.remarks: list[str] = []
        self.marks: list[object] = []

    def send(self, peer: FakePeer, frames: Sequence[bytes], mark: object = None) -> None:
        assert frames[0] == b"", "every message begins with the empty delimiter"
        assert not peer.is_lost
        peer.inbox.append([bytes(frame) for frame in frames[1:]])
        if mark is not None:
            self.marks.append(mark)

    def dial(self, *_: object) -> FakePeer:
        raise AssertionError("PingPong never dials")

    def close(self, peer: FakePeer, reason: str) -> None:
        if peer.closed is None:
            peer.closed = reason
            self.closing.append(peer)

    def bad_message(self, peer: FakePeer, reason: str, detail: str = "") -> None:
        assert reason
        assert detail
        self.bad.append(reason)

    def when_settled(self, peer: FakePeer, call: Callable[[float], object]) -> None:
        call(self.now())

    def remark(self, event: str, /, **fields: object) -> None:
        self.remarks.append(event)

    def remark_limited(self, event: str, /, **fields: object) -> None:
        self.remarks.append(event)


class World:
    """Verbs of peers in, what they were told out. Everything that must hold is checked after every step."""

    def __init__(self, *, policy: Policy | None = None, started: float = 1_000.0, **options: Any) -> None:
        # Far from the start by default, so that R38's caution is over; `started` is when the broker began.
        self.now = 10_000.0 if started == 1_000.0 else started
        self.broker = Broker(policy or Policy(), SeededEntropy("pingpong"))
        self.counters = self.broker.counters
        self.line = RecordingLine(lambda: self.now)
        self.options = ListenerOptions(**options)
        self.session = PingPongSession(self.broker, self.line, self.options, MAX_PAYLOAD, started)  # type: ignore[arg-type]
        self.peers: list[FakePeer] = []

    # ---------------------------------------------------------------- peers come and go

    def worker(self, identity: bytes = b"") -> FakePeer:
        """A worker's connection, which has said nothing yet."""
        return self._open(BACKEND, identity)

    def ready_worker(self, identity: bytes = b"") -> FakePeer:
        peer = self.worker(identity)
        assert self.tell(peer, READY)[:1] == [[PONG]]
        return peer

    def caller(self, identity: bytes = b"") -> FakePeer:
        return self._open(FRONTEND, identity)

    def call(self, payload: bytes = b"job") -> FakePeer:
        """A new caller that asks for one job."""
        peer = self.caller()
        assert self.tell(peer, payload) == []
        return peer

    def busy_worker(self, payload: bytes = b"job") -> tuple[FakePeer, FakePeer]:
        """A worker that has just been given a job, and the caller who waits for it."""
        worker = self.ready_worker()
        caller = self.call(payload)
        assert worker.told()[0][0] == payload
        return worker, caller

    def lose(self, peer: FakePeer, *, unsent: Sequence[object] = ()) -> None:
        self._lost(peer, unsent)
        self.settle()

    # ---------------------------------------------------------------- what they say

    def tell(self, peer: FakePeer, *words: bytes) -> list[list[bytes]]:
        """The peer says one message; returns what it was told since it last looked."""
        self.hear(peer, [b"", *words])
        self.settle()
        return peer.told()

    def raw(self, peer: FakePeer, message: list[bytes] | TooLarge) -> list[list[bytes]]:
        """The same for messages of any shape."""
        self.hear(peer, message)
        self.settle()
        return peer.told()

    def hear(self, peer: FakePeer, message: list[bytes] | TooLarge) -> None:
        """The peer says something, and the turn of the loop is not over yet: effects wait."""
        assert peer.closed is None, "the line hands up nothing from a peer that is being closed"
        self.session.hear(peer, message, self.now)  # type: ignore[arg-type]
        check(self.broker)

    # ---------------------------------------------------------------- time and turns

    def wait(self, seconds: float) -> None:
        """Time passes, judged at every deadline on the way."""
        until = self.now + seconds
        while (due := self.broker.next_deadline()) <= until:
            self.now = max(self.now, due)
            self.broker.tick(self.now)
            self.settle()
        self.now = until
        self.broker.tick(self.now)
        assert self.session.tick(self.now) == inf
        self.settle()

    def wait_pinging(self, worker: FakePeer, seconds: float, every: float = 1.0) -> None:
        """Time passes while the worker goes on pinging, as a threaded one does."""
        until = self.now + seconds
        while self.now < until - 1e-9:
            self.wait(min(every, until - self.now))
            self.tell(worker, PING)

    def settle(self) -> None:
        """The end of a turn: effects are carried out in order, and what was closed is lost."""
        while self.broker.effects or self.line.closing:
            while self.broker.effects:
                effect = self.broker.effects.pop(0)
                if isinstance(effect, Give):
                    effect.attempt.mark_sent()
                self.session.execute(effect, self.now)
                check(self.broker)
            while self.line.closing:
                self._lost(self.line.closing.pop(0))
        self._check()

    # ---------------------------------------------------------------- what to look at

    def worker_of(self, peer: FakePeer) -> Worker | None:
        """The broker's record of who is at this connection."""
        guest: Guest = peer.guest
        return guest.worker

    def state(self, peer: FakePeer) -> str:
        """`unknown`, `exiting`, `closed`, or the worker's state in the broker."""
        if peer.closed is not None or peer.is_lost:
            return "closed"
        if peer.guest.is_exiting:
            return "exiting"
        worker = self.worker_of(peer)
        return "unknown" if worker is None else str(worker.state)

    def token(self, peer: FakePeer) -> bytes:
        """The token of what the worker at this connection was given."""
        return bytes(peer.guest.attempt.token)

    def job(self) -> Job:
        """The only job that is present."""
        (job,) = self.broker.jobs.values()
        return job

    @property
    def present(self) -> int:
        """How many jobs were accepted and have not ended."""
        return sum(job.state is not JobState.ENDED for job in self.broker.jobs.values())

    # ---------------------------------------------------------------- inside

    def _open(self, endpoint: str, identity: bytes) -> FakePeer:
        peer = FakePeer(self.session, endpoint, identity, f"{endpoint}-{len(self.peers) + 1}")
        self.peers.append(peer)
        self.session.opened(peer, self.now)  # type: ignore[arg-type]
        self.settle()
        return peer

    def _lost(self, peer: FakePeer, unsent: Sequence[object] = ()) -> None:
        assert not peer.is_lost
        peer.is_lost = True
        self.session.lost(peer, unsent, self.now)  # type: ignore[arg-type]
        check(self.broker)

    def _check(self) -> None:
        """The broker's invariants, and that the session knows exactly what each of its workers holds."""
        check(self.broker)
        met = set()
        for peer in self.peers:
            guest = peer.guest
            if not isinstance(guest, Guest):
                continue
            if guest.worker is None:
                assert guest.attempt is None, f"{peer.label} holds an attempt and is nobody"
                continue
            assert not peer.is_lost, f"{peer.label} is lost and still a worker"
            worker = guest.worker
            met.add(worker.id)
            assert worker.id in self.broker.roster.workers, f"{peer.label} is a worker that has gone"
            held = [*worker.running.values(), *worker.unproven.values()]
            assert held == ([] if guest.attempt is None else [guest.attempt]), f"{peer.label}: {held} in the broker"
        assert met == set(self.broker.roster.workers), "a worker is in the broker and at no connection"


def error(reason: str) -> list[list[bytes]]:
    """The row for every outcome but done: `["", "", "ERROR", reason]`."""
    return [[b"", b"ERROR", reason.encode()]]


PLAIN, PACKAGE = Edition.PLAIN, Edition.PACKAGE

both = pytest.mark.parametrize("edition", [PLAIN, PACKAGE])


def finish(world: World, worker: FakePeer, result: bytes) -> list[list[bytes]]:
    """The worker sends its result as its edition has it."""
    if world.options.edition is PLAIN:
        return world.tell(worker, result)
    return world.tell(worker, JOB_COMPLETE, world.token(worker), b"", result)
