"""PingPong in the world of dialects: workers on the backend and callers on the frontend, in both editions."""

from __future__ import annotations

from typing import Any

import pytest

from dialect_world import DialectWorld, ZmtpEnd
from dragoman.carriers.carrier import TooLarge
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_limits import ZmtpLimits
from dragoman.core.model import Worker
from dragoman.core.policy import Policy
from dragoman.dialects.frontend import FRONTEND
from dragoman.dialects.pingpong.broker_side import BACKEND, PingPongBrokerSide
from dragoman.dialects.pingpong.editions import Edition
from dragoman.dialects.pingpong.options import ListenerOptions
from dragoman.dialects.pingpong.remote_workers import RemoteWorker

READY, PING, PONG, EXIT = b"READY", b"PING", b"PONG", b"EXIT"
DISCONNECT, JOB_COMPLETE = b"DISCONNECT", b"JOB COMPLETE"

MAX_PAYLOAD = 1_000


class Side(ZmtpEnd):
    """The remote end of a connection: a DEALER of a ZeroMQ library."""

    def __init__(self, world: World, identity: bytes) -> None:
        super().__init__(world, Zmtp("DEALER", identity, dials=True))

    @property
    def remote(self) -> Any:
        return self.peer.remote

    @property
    def closed(self) -> str | None:
        """Return the reason, once the broker side has closed the connection or it has ended."""
        return self.peer.closing

    @property
    def is_lost(self) -> bool:
        return self.peer.is_lost

    def told(self) -> list[list[bytes]]:
        """Return the messages received since the last call, without the delimiter."""
        told = self.messages()
        assert all(message[0] == b"" for message in told), "every message begins with the empty delimiter"
        return [message[1:] for message in told]


class World(DialectWorld):
    """Sends messages of workers and callers, and returns what they receive."""

    session: PingPongBrokerSide

    def __init__(self, *, policy: Policy | None = None, started: float = 1_000.0, **options: Any) -> None:
        # Far from the start by default, so that R38's caution is over; `started` is when the broker began.
        super().__init__("pingpong", policy=policy, now=10_000.0 if started == 1_000.0 else started)
        self.options = ListenerOptions(**options)
        self.session = PingPongBrokerSide(self.broker, self.connections, self.options, MAX_PAYLOAD, started)
        self.serve(self.session)

    # ---------------------------------------------------------------- peers come and go

    def worker(self, identity: bytes = b"") -> Side:
        """Open a worker's connection, without a message."""
        return self._open(BACKEND, identity)

    def worker_in_this_turn(self, identity: bytes) -> Side:
        """Open a worker's connection with the whole handshake in one read, before an iteration."""
        side = self._accept(BACKEND, identity)
        side.greet_ahead(Zmtp("DEALER", identity, dials=True), Zmtp("ROUTER"))
        self.run_once()
        return side

    def ready_worker(self, identity: bytes = b"") -> Side:
        peer = self.worker(identity)
        assert self.tell(peer, READY)[:1] == [[PONG]]
        return peer

    def caller(self, identity: bytes = b"") -> Side:
        return self._open(FRONTEND, identity)

    def call(self, payload: bytes = b"job") -> Side:
        """Return a new caller that has sent one job."""
        peer = self.caller()
        assert self.tell(peer, payload) == []
        return peer

    def busy_worker(self, payload: bytes = b"job") -> tuple[Side, Side]:
        """Return a worker that has just received a job, and the caller that waits for it."""
        worker = self.ready_worker()
        caller = self.call(payload)
        assert worker.told()[0][0] == payload
        return worker, caller

    def lose(self, side: Side) -> None:
        side.cut()

    # ---------------------------------------------------------------- what they say

    def tell(self, peer: Side, *words: bytes) -> list[list[bytes]]:
        """Send one message. Returns the messages received since the last call."""
        self.receive(peer, [b"", *words])
        self.settle()
        return peer.told()

    def raw(self, peer: Side, message: list[bytes] | TooLarge) -> list[list[bytes]]:
        """Send frames of any shape. Returns the messages received since the last call."""
        self.receive(peer, message)
        self.settle()
        return peer.told()

    def receive(self, peer: Side, message: list[bytes] | TooLarge) -> None:
        """Send a message without an iteration: effects wait."""
        assert peer.closed is None, "the connections hand up nothing from a peer that is being closed"
        if isinstance(message, list) and message:
            peer.send(message)
        else:  # what no library sends, or what the carrier makes of a message over the limit
            self.connections.arrived(peer.peer, [message])
            self.judge()

    # ---------------------------------------------------------------- time and turns

    def wait_pinging(self, worker: Side, seconds: float, every: float = 1.0) -> None:
        """Let time pass while the worker pings, as a threaded one does."""
        until = self.now + seconds
        while self.now < until - 1e-9:
            self.wait(min(every, until - self.now))
            self.tell(worker, PING)

    def settle(self) -> None:
        self.run_once()

    # ---------------------------------------------------------------- what to look at

    def worker_of(self, peer: Side) -> Worker | None:
        """Return the broker's worker of this connection."""
        remote: RemoteWorker = peer.remote
        return remote.worker

    def state(self, peer: Side) -> str:
        """`unknown`, `exiting`, `closed`, or the worker's state in the broker."""
        if peer.closed is not None or peer.is_lost:
            return "closed"
        if peer.remote.is_exiting:
            return "exiting"
        worker = self.worker_of(peer)
        return "unknown" if worker is None else str(worker.state)

    def token(self, peer: Side) -> bytes:
        """Return the token of the worker's attempt."""
        return bytes(peer.remote.attempt.token)

    # ---------------------------------------------------------------- inside

    def _open(self, endpoint: str, identity: bytes) -> Side:
        side = self._accept(endpoint, identity)
        self.run_once()
        return side

    def _accept(self, endpoint: str, identity: bytes) -> Side:
        carrier = Zmtp("ROUTER", limits=ZmtpLimits(max_payload=MAX_PAYLOAD))
        return self.accept(Side(self, identity), endpoint, carrier)

    def check_books(self) -> None:
        """Check that the broker side knows the attempt of each worker."""
        met = set()
        for peer in self.connections.peers:
            remote = peer.remote
            if not isinstance(remote, RemoteWorker):
                continue
            if remote.worker is None:
                assert remote.attempt is None, f"{peer.label} holds an attempt and is nobody"
                continue
            worker = remote.worker
            met.add(worker.id)
            assert worker.id in self.broker.worker_registry.workers, f"{peer.label} is a worker that has gone"
            held = [*worker.running.values(), *worker.stuck.values()]
            assert held == ([] if remote.attempt is None else [remote.attempt]), f"{peer.label}: {held} in the broker"
        assert met == set(self.broker.worker_registry.workers), "a worker is in the broker and at no connection"


def error(reason: str) -> list[list[bytes]]:
    """Return the response for every outcome but done: `["", "", "ERROR", reason]`."""
    return [[b"", b"ERROR", reason.encode()]]


PLAIN, PACKAGE = Edition.PLAIN, Edition.PACKAGE

both = pytest.mark.parametrize("edition", [PLAIN, PACKAGE])


def finish(world: World, worker: Side, result: bytes) -> list[list[bytes]]:
    """Send the worker's result in its edition."""
    if world.options.edition is PLAIN:
        return world.tell(worker, result)
    return world.tell(worker, JOB_COMPLETE, world.token(worker), b"", result)
