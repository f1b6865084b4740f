"""Powerhose in the world of dialects: workers that register, endpoints that accept dials or do not, and callers."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any

from dialect_world import HOME, DialectWorld, ZmtpEnd
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_limits import ZmtpLimits
from dragoman.core.model import Caller as CoreCaller
from dragoman.core.policy import Policy
from dragoman.core.recipients import Recipient
from dragoman.dialects.frontend import FRONTEND
from dragoman.dialects.powerhose.broker_side import (
    BACKEND,
    WORK,
    WORKERS_KEPT,
    PowerhoseBrokerSide,
    RemotePowerhoseWorker,
    WorkerStage,
)
from dragoman.dialects.powerhose.options import ListenerOptions
from dragoman.server.admission import AdmissionLimits
from dragoman.server.connection import StreamConnection
from dragoman.testing.entropy import SeededEntropy
from owners import LOCAL_OWNER

PING, PONG, REMOVE, REMOVED, ERROR = b"PING", b"PONG", b"REMOVE", b"REMOVED", b"ERROR"
WAKE, GIVE, JOB, JOBRES = b"WAKE", b"GIVE", b"JOB", b"JOBRES"

MAX_PAYLOAD = 10_000
ELSEWHERE = "192.0.2.2"
FIRST = "tcp://192.0.2.1:9001"
SECOND = "tcp://192.0.2.1:9002"
THIRD = "tcp://192.0.2.1:9003"
FORBIDDEN = "tcp://198.51.100.1:22"


def fields(*parts: bytes | str) -> bytes:
    return b":::".join(part.encode() if isinstance(part, str) else part for part in parts)


class End(ZmtpEnd):
    """A connection of a caller or of a worker."""

    def receive(self, *frames: bytes) -> None:
        self.send(frames)

    def say(self, *frames: bytes) -> list[list[bytes]]:
        """Send a message and run an iteration. Returns the messages received since the last call."""
        self.receive(*frames)
        self.world.run_once()
        return self.messages()

    def ask(self, word: bytes) -> list[bytes]:
        return [message[-1] for message in self.say(b"", word)]

    def told(self) -> list[bytes]:
        """Return the messages received since the last call, which follow an empty frame."""
        told = self.messages()
        assert all(len(message) == 2 and message[0] == b"" for message in told), told
        return [message[1] for message in told]


class Caller:
    """A caller on the frontend."""

    def __init__(self, world: World) -> None:
        self.end = world.connect(FRONTEND, HOME, "DEALER")

    def call(self, payload: bytes) -> None:
        self.end.receive(b"", payload)
        self.end.world.run_once()

    def told(self) -> list[bytes]:
        """Return results, and other outcomes as `outcome: reason`."""
        told = []
        for message in self.end.messages():
            if len(message) == 4:
                assert message[:3] == [b"", b"", ERROR], message
            else:
                assert (len(message), message[0]) == (2, b""), message
            told.append(message[-1])
        return told

    def ending(self) -> str:
        """Return the outcome of its only job."""
        (told,) = self.told()
        return told.decode().partition(":")[0]


class Bench:
    """A worker: its endpoint, its registration connection, and the broker's connections to it."""

    def __init__(self, world: World, endpoint: str, address: str) -> None:
        self.world = world
        self.endpoint = endpoint
        self.registrant = world.connect(BACKEND, address)
        self.job_id = b""

    @property
    def lives(self) -> list[End]:
        """Return every connection to it."""
        return self.world.reached.get(self.endpoint, [])

    @property
    def end(self) -> End:
        return self.lives[-1]

    @property
    def post(self) -> RemotePowerhoseWorker:
        return self.world.session._remotes[self.endpoint]

    @property
    def state(self) -> str:
        return self.world.state(self.endpoint)

    def ping(self) -> list[bytes]:
        return self.registrant.ask(fields(PING, self.endpoint))

    def remove(self) -> list[bytes]:
        return self.registrant.ask(fields(REMOVE, self.endpoint))

    def told(self) -> list[bytes]:
        return self.end.told()

    def say(self, word: bytes) -> None:
        self.end.receive(b"", word)
        self.world.run_once()

    def accept(self, within: float = 0.0) -> bytes:
        """Wait for WAKE, send GIVE, and receive a job. Returns the job's data."""
        until = self.world.now + within
        while not (told := self.told()) and self.world.now < until:
            self.world.wait(0.05)
        assert told == [WAKE]
        self.say(GIVE)
        (job,) = self.told()
        word, self.job_id, data = job.split(b":::", 2)
        assert word == JOB
        return data

    def finish(self, result: bytes = b"result") -> None:
        self.say(fields(JOBRES, self.job_id, result))

    def work(self, result: bytes = b"result") -> bytes:
        data = self.accept()
        self.finish(result)
        return data

    def die(self) -> None:
        """End its process: the connection ends, and dials fail."""
        self.world.places[self.endpoint] = "refused"
        self.end.cut()


class World(DialectWorld):
    session: PowerhoseBrokerSide

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        reach: Any = None,
        limits: AdmissionLimits | None = None,
        entropy: SeededEntropy | None = None,
        **options: Any,
    ) -> None:
        super().__init__(entropy or "powerhose", policy=policy, limits=limits)
        self.places: dict[str, str] = {}  # `open` unless it says `refused`, `hangs` or `mute`
        self.dialled: list[tuple[float, str]] = []
        self.reached: dict[str, list[End]] = {}
        self.options = ListenerOptions(**options)
        limits_ = ZmtpLimits(max_payload=MAX_PAYLOAD)
        carrier = partial(Zmtp, "REQ", dials=True, limits=limits_)
        self._listener_carrier = partial(Zmtp, "ROUTER", limits=limits_)
        self.session = PowerhoseBrokerSide(
            self.broker, self.connections, self.options, MAX_PAYLOAD, reach or self._reach, carrier
        )
        self.serve(self.session)

    # ---------------------------------------------------------------- who is there

    def connect(self, listener: str, address: str = HOME, kind: str = "REQ") -> End:
        end = self.accept(End(self, Zmtp(kind, dials=True)), listener, self._listener_carrier(), address)
        self.run_once()
        return end

    def bench(self, endpoint: str = FIRST, address: str = HOME) -> Bench:
        """Return a worker that has not registered."""
        return Bench(self, endpoint, address)

    def worker(self, endpoint: str = FIRST, address: str = HOME) -> Bench:
        """Return a worker that has registered; it is idle unless a job waited for it."""
        bench = self.bench(endpoint, address)
        assert bench.ping() == [PONG]
        assert bench.state in ("idle", "waking")
        return bench

    def caller(self) -> Caller:
        return Caller(self)

    def call(self, payload: bytes = b"job") -> Caller:
        caller = Caller(self)
        caller.call(payload)
        return caller

    def asked(self, endpoint: str = FIRST) -> tuple[Bench, Caller]:
        """Return a worker that has just received WAKE, and the caller of the job."""
        bench = self.worker(endpoint)
        caller = self.call()
        assert bench.told() == [WAKE]
        return bench, caller

    def busy(self, endpoint: str = FIRST, payload: bytes = b"job") -> tuple[Bench, Caller]:
        """Return a worker that has just received a job, and its caller."""
        bench = self.worker(endpoint)
        caller = self.call(payload)
        assert bench.accept() == payload
        return bench, caller

    # ---------------------------------------------------------------- what to look at

    def state(self, endpoint: str) -> str:
        """Return a worker's state: `unknown`, its stage, or its state in the broker if that tells more."""
        post = self.session._remotes.get(endpoint)
        if post is None:
            return "unknown"
        if post.worker is not None and str(post.worker.state) in ("draining", "stuck"):
            return f"{post.stage.value}, {post.worker.state}"
        if post.stage is WorkerStage.AWAY and self.now < post.retry_at:
            return "resting"
        return post.stage.value

    def withdraw(self) -> None:
        """Cancel the only job, as an operator."""
        assert self.broker.withdraw(self.job(), self.now)
        self.run_once()

    def drain(self) -> None:
        """Start draining the broker."""
        self.broker.operator.close(self.now)
        self.run_once()

    # ---------------------------------------------------------------- time and turns

    def move(self) -> bool:
        dials, self.dials = self.dials, []
        connected = [self._connect(peer, place) for peer, place in dials]
        return super().move() or any(connected)

    def wait_pinging(self, seconds: float, *benches: Bench, every: float = 1.0) -> None:
        """Let time pass, while workers ping."""
        until = self.now + seconds
        while self.now < until - 1e-9:
            self.wait(min(every, until - self.now))
            for bench in benches:
                assert bench.ping() == [PONG]

    # ---------------------------------------------------------------- what must hold

    def check_books(self) -> None:
        session = self.session
        at_work = set()
        for endpoint, post in session._remotes.items():
            assert post.endpoint == endpoint
            assert (post.stage is WorkerStage.AWAY) == (post in session._away), "off the list, or not?"
            if post.worker is not None:
                at_work.add(post.worker.id)
            self._check_post(post)
        assert at_work == set(self.broker.worker_registry.workers), "broker and session know different workers"
        assert len(session._away) <= WORKERS_KEPT
        assert all(session._remotes.get(post.endpoint) is post for post in session._away)
        living = [post for _, number, post in session._alarms.entries() if post.alarm_number == number]
        assert all(session._remotes.get(post.endpoint) is post for post in living), "an alarm of somebody forgotten"
        assert len(living) == session._alarms.armed
        ours = {post.peer for post in session._remotes.values()} - {None}
        dialled = {peer for peer in self.connections.peers if peer.socket_name == WORK}
        assert ours == dialled, "a connection that nobody knows"

    def _check_post(self, post: RemotePowerhoseWorker) -> None:
        peer, worker, attempt = post.peer, post.worker, post.attempt
        if post.stage in (WorkerStage.AWAY, WorkerStage.DIALLING):
            assert worker is None
            assert attempt is None
            if post.stage is WorkerStage.AWAY:
                assert peer is None
                assert post.alarm == inf
            elif peer is None:
                assert post.alarm <= post.due < inf, "it will never be dialled again"
            return
        assert worker is not None
        assert worker.remote is post
        assert peer is not None
        assert peer.remote is post
        assert peer.is_open
        assert (attempt is None) == (post.stage is WorkerStage.IDLE)
        held = [*worker.running.values(), *worker.stuck.values()]
        assert held == ([] if attempt is None else [attempt]), "broker and session disagree on its job"
        if post.stage is WorkerStage.WAKING:
            assert post.alarm <= post.due < inf, "its answer will be waited for for ever"

    # ---------------------------------------------------------------- inside

    def _reach(self, endpoint: str, address: str) -> tuple[object | None, str]:
        return (None, "it is forbidden") if endpoint == FORBIDDEN else (endpoint, "")

    def dial(self, peer: StreamConnection, place: object) -> None:
        self.dialled.append((self.now, str(place)))
        super().dial(peer, str(place))

    def _connect(self, peer: StreamConnection, place: str) -> bool:
        mode = self.places.get(place, "open")
        if mode == "hangs":
            self.dials.append((peer, place))
            if not peer.is_lost and self.now < peer.since + 1.0:  # what the host allows a dial
                return False
            self.dials.pop()
            mode = "refused"
        if peer.is_lost:
            return False
        if mode == "refused":
            self.connections.host_access.dialled(peer, None, f"cannot connect to {place}: refused")
            return True
        end = End(self, Zmtp("REP"))
        end.peer = peer
        end.is_frozen = mode == "mute"
        self.ends.append(end)
        self.reached.setdefault(place, []).append(end)
        self.connections.host_access.dialled(peer, end.stream)
        return True


class Nobody(CoreCaller):
    """A caller whose outcomes are ignored."""

    def __init__(self) -> None:
        super().__init__(Recipient(), LOCAL_OWNER)
