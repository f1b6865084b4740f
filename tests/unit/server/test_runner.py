"""The runner by itself: fake streams, a scripted broker side, and time as a number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, cast

import pytest

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_commands import OUR_GREETING
from dragoman.core.broker import Broker
from dragoman.core.effects import DeliverOutcome, Effect, RemoveWorker, SendJob
from dragoman.core.errors import InvariantBroken
from dragoman.core.model import ABSENT, Attempt, Job, Worker
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.policy import Policy
from dragoman.core.states import JobState, Outcome
from dragoman.server.admission import AdmissionLimits
from dragoman.server.connection import StreamConnection
from dragoman.server.connection_limits import ConnectionLimits
from dragoman.server.runner import Runner
from dragoman.store.null import NullStore
from dragoman.streams.byte_stream import ByteStream
from dragoman.testing.entropy import SeededEntropy
from owners import LOCAL_OWNER

GREETING = OUR_GREETING + b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06DEALER"


class FakeStream(ByteStream):
    """Takes as many bytes as there is room for; the rest is its backlog."""

    def __init__(self) -> None:
        self.sent = 0
        self.received = 0
        self.backlog = 0
        self.closed_in_order = False
        self.room = inf
        self.is_closed = False
        self.is_over = False  # the other side has closed, which is noticed by a read
        self.unread_bytes = 0
        self.on_read_dry: Callable[[], None] = lambda: None

    def write(self, buffers: list[Frame]) -> None:
        self.backlog += sum(map(len, buffers))
        self.drain()

    def drain(self) -> None:
        taken = int(min(self.backlog, self.room))
        self.backlog -= taken
        self.sent += taken
        self.room -= taken

    def close(self) -> None:
        self.is_closed = True

    def read_dry(self) -> bool:
        self.on_read_dry()
        return not self.is_over

    def unread(self) -> int:
        return self.unread_bytes


class FakeSession:
    """Records its effects, and raises for effects of one kind."""

    dialect = "fake"

    def __init__(self) -> None:
        self.stumbles_over: type[Effect] | None = None
        self.said: list[Effect] = []
        self.losses: list[Any] = []

    def opened(self, peer: Any, now: float) -> None: ...

    def receive(self, peer: Any, message: Message | TooLarge, now: float) -> None: ...

    def execute(self, effect: Effect, now: float) -> None:
        if type(effect) is self.stumbles_over:
            raise RuntimeError("clumsy")
        self.said.append(effect)

    def lost(self, peer: Any, unsent: Sequence[object], now: float) -> None:
        self.losses.append(peer)

    def tick(self, now: float) -> float:
        return inf


class World:
    def __init__(self) -> None:
        self.now = 100.0
        self.broker = Broker(Policy(), SeededEntropy())
        self.store = NullStore()
        self.runner = Runner(
            self.broker, self.store, lambda: self.now, lambda *_, **__: None, AdmissionLimits(), strict=True
        )
        self.session = FakeSession()
        self.runner.sessions.append(self.session)

    def connect(self, limits: ConnectionLimits | None = None) -> tuple[StreamConnection, FakeStream]:
        """A peer that has not greeted yet."""
        stream = FakeStream()
        peer = self.runner.connections.connected(
            self.session, "listener", Zmtp("ROUTER"), stream, "a peer", "address", limits or ConnectionLimits()
        )
        self.runner.run_once()
        return peer, stream

    def meet(self, limits: ConnectionLimits | None = None) -> tuple[StreamConnection, FakeStream]:
        """A peer that has greeted."""
        peer, stream = self.connect(limits)
        self.runner.connections.arrived(peer, peer.carrier.feed(GREETING))
        self.runner.run_once()
        assert peer.is_open
        return peer, stream

    def worker(self) -> Worker:
        worker = self.broker.join(self.session, None, "w", ("s",), WorkerProfile(), self.now, LOCAL_OWNER)
        assert worker is not None
        self.broker.idle(worker, self.now)
        return worker

    def submit(self, caller: StreamConnection, **job_options: Any) -> Job:
        job = self.broker.submit("s", b"x", caller, JobOptions(**job_options), self.now)
        assert job is not None
        return job


@pytest.fixture
def world() -> World:
    return World()


def test_connections_of_a_remote_address_share_their_limits_and_local_ones_do_not(world: World) -> None:
    """L8, R29."""

    def connect(address: str, is_local: bool) -> StreamConnection:
        carrier, stream = Zmtp("ROUTER"), FakeStream()
        return world.runner.connections.connected(
            world.session, "listener", carrier, stream, "a peer", address, ConnectionLimits(), is_local=is_local
        )

    near = [connect("127.0.0.1", True) for _ in range(2)]
    far = [connect("192.0.2.1", False) for _ in range(2)]
    other = connect("192.0.2.2", False)
    assert near[0].owner is not near[1].owner
    assert far[0].owner is far[1].owner
    assert other.owner is not far[0].owner
    assert far[0].owner.connections == 2
    world.runner.connections.ended(far[0], "gone")
    assert far[1].owner.connections == 1


def test_after_a_long_sleep_a_handshake_has_its_time_out_and_no_more(world: World) -> None:
    """D13, R26. A bug: the alarm moved by the whole of an eight-hour sleep, and the peer stayed for as long."""
    limits = ConnectionLimits(handshake_timeout=10.0)
    peer, stream = world.connect(limits)
    world.now += 1.0
    world.runner.connections.registry.handle_pause(world.broker, 8 * 3_600.0)
    assert world.now < peer.alarm <= world.now + limits.handshake_timeout
    end = world.now + limits.handshake_timeout
    while world.now < end:
        assert not peer.is_lost
        world.now = min(world.runner.run_once(), end)
    world.runner.run_once()
    assert peer.is_lost
    assert stream.is_closed


def test_a_worker_that_could_not_be_told_its_job_is_dismissed_and_the_caller_hears_of_it(world: World) -> None:
    """R27. A bug: it left the broker without a notice to its broker side, which still treated it as a worker."""
    caller, _ = world.meet()
    worker = world.worker()
    job = world.submit(caller)
    world.session.stumbles_over = SendJob
    world.runner.run_once()
    assert [effect.worker for effect in world.session.said if isinstance(effect, RemoveWorker)] == [worker]
    assert not world.broker.worker_registry.workers
    (answer,) = [effect for effect in world.session.said if isinstance(effect, DeliverOutcome)]
    assert (answer.caller, answer.job, answer.outcome) == (caller, job, Outcome.LOST)
    assert world.broker.counters.internal_errors == 1


def test_a_job_that_could_not_be_told_is_tried_again_where_its_caller_wants_that(world: World) -> None:
    """R27: its worker is let go, and the job waits for another."""
    caller, _ = world.meet()
    first = world.worker()
    job = world.submit(caller, attempts=2)
    world.session.stumbles_over = SendJob
    world.runner.run_once()
    assert job.state is not JobState.ENDED
    world.session.stumbles_over = None
    second = world.worker()
    for _ in range(100):
        if job.state is JobState.RUNNING:
            break
        world.now = world.runner.run_once()
    world.runner.run_once()
    (given,) = [effect for effect in world.session.said if isinstance(effect, SendJob)]
    assert (given.attempt.job, given.attempt.worker) == (job, second)
    assert first.id not in world.broker.worker_registry.workers


def test_a_caller_that_could_not_be_answered_is_disconnected(world: World) -> None:
    """R27. A bug: it stayed connected and waited forever for an outcome that did not exist any more."""
    caller, stream = world.meet()
    other, _ = world.meet()
    world.worker()
    job = world.submit(caller)
    world.runner.run_once()
    assert job.attempt is not None
    world.session.stumbles_over = DeliverOutcome
    world.broker.succeed(job.attempt, b"result", world.now)
    world.runner.run_once()
    assert world.session.losses == [caller]
    assert stream.is_closed
    assert list(world.runner.connections.peers) == [other]


def test_a_large_message_that_has_left_is_no_excuse_for_a_backlog_of_small_ones(world: World) -> None:
    """R17. A bug: its size was forgotten only by a message with a mark, and till then widened max_send_buffer."""
    peer, stream = world.meet(ConnectionLimits(max_send_buffer=1_000))

    def send(size: int) -> None:
        world.runner.connections.send(peer, [bytes(size)])
        world.runner.run_once()

    stream.room = 0
    send(100_000)
    assert stream.backlog >= 100_000
    assert not peer.is_lost, "one message may always wait"
    stream.room = inf
    stream.drain()
    send(10)
    assert peer.largest == 0
    stream.room = 0
    for _ in range(15):
        send(100)
    assert not peer.is_lost, "it may still read"
    for _ in range(17):
        world.now += 1.0
        world.runner.connections.arrived(peer, [])
        world.runner.run_once()
    assert peer.is_lost
    assert world.broker.counters.connections_closed_slow == 1


# ---------------------------------------------------------------- workers that have just come


class Settling:
    """Delayed calls of the runner."""

    def __init__(self, line: Runner) -> None:
        self.calls: list[Callable[[], None]] = []
        self.times: list[float] = []
        line.connections.host_access.later = lambda _, call: self.calls.append(call)

    def come(self, world: World, peer: StreamConnection) -> None:
        world.runner.connections.when_settled(peer, self.times.append)

    def pass_by(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def test_connection_that_stays_open_for_a_moment_is_settled(world: World) -> None:
    """D7."""
    settling = Settling(world.runner)
    peer, _ = world.meet()
    settling.come(world, peer)
    assert settling.times == []
    settling.pass_by()
    assert settling.times == [world.now]


def test_connection_whose_end_has_arrived_unread_is_never_settled(world: World) -> None:
    """D7. A bug: a worker that had closed its connection got a job, because the end was not read."""
    settling = Settling(world.runner)
    peer, stream = world.meet()
    settling.come(world, peer)
    stream.is_over = True
    settling.pass_by()
    assert settling.times == []


def test_connection_that_is_closed_for_what_was_read_last_is_never_settled(world: World) -> None:
    settling = Settling(world.runner)
    peer, stream = world.meet()
    settling.come(world, peer)
    stream.on_read_dry = lambda: world.runner.connections.close(peer, "a bad word")
    settling.pass_by()
    assert settling.times == []


def test_connection_that_was_lost_meanwhile_is_never_settled(world: World) -> None:
    settling = Settling(world.runner)
    peer, _ = world.meet()
    settling.come(world, peer)
    world.runner.connections.ended(peer, "over")
    settling.pass_by()
    assert settling.times == []


# -------------------------------------------------------------------- effects


class Acting(FakeSession):
    """Does something when it is given one job."""

    def __init__(self) -> None:
        super().__init__()
        self.acts: dict[Job, Callable[[], object]] = {}

    def execute(self, effect: Effect, now: float) -> None:
        super().execute(effect, now)
        if isinstance(effect, SendJob) and effect.attempt.job in self.acts:
            self.acts[effect.attempt.job]()

    def given(self) -> list[Job]:
        return [effect.attempt.job for effect in self.said if isinstance(effect, SendJob)]


@pytest.fixture
def acting(world: World) -> Acting:
    """The session of four workers that are idle."""
    session = Acting()
    world.session = session
    world.runner.sessions[:] = [session]
    for _ in range(4):
        world.worker()
    return session


def test_effects_that_follow_from_an_effect_are_carried_out_in_the_same_turn(world: World, acting: Acting) -> None:
    caller, _ = world.meet()
    job = world.submit(caller)
    acting.acts[job] = lambda: world.broker.succeed(attempt_of(job), b"y", world.now)
    world.runner.run_once()
    assert [type(effect) for effect in acting.said] == [SendJob, DeliverOutcome]
    assert world.broker.effects == []


def test_a_job_that_is_withdrawn_while_effects_are_carried_out_is_never_given(world: World, acting: Acting) -> None:
    """The list of effects is walked through while its later entries are removed: no other one may be left out."""
    caller, _ = world.meet()
    first, second, third, fourth = (world.submit(caller) for _ in range(4))
    acting.acts[first] = lambda: world.broker.withdraw(second, world.now)
    acting.acts[third] = lambda: world.broker.withdraw(first, world.now)
    world.runner.run_once()
    assert acting.given() == [first, third, fourth]
    assert [effect.job for effect in acting.said if isinstance(effect, DeliverOutcome)] == [second, first]


def test_a_job_that_is_withdrawn_while_its_payload_is_fetched_leaves_no_gap(world: World, acting: Acting) -> None:
    """Its effect stands behind the runner in the list. Removing it there would have the next one left out."""
    caller, _ = world.meet()
    absent = world.broker.submit("s", ABSENT, caller, JobOptions(), world.now)
    assert absent is not None
    second, third, fourth = (world.submit(caller) for _ in range(3))
    fetches: list[Callable[[bytes, bytes, None], None]] = []
    world.store.fetch = lambda job, done: fetches.append(done)  # type: ignore[method-assign, assignment]
    acting.acts[second] = lambda: world.broker.withdraw(absent, world.now)
    world.runner.run_once()
    assert acting.given() == [second, third, fourth]
    fetches[0](b"x", b"", None)
    world.runner.run_once()
    assert acting.given() == [second, third, fourth]


def test_effects_that_were_carried_out_before_an_invariant_broke_are_not_carried_out_again(
    world: World, acting: Acting
) -> None:
    caller, _ = world.meet()
    first, second = world.submit(caller), world.submit(caller)

    def break_it() -> None:
        raise InvariantBroken("on purpose")

    acting.acts[first] = break_it
    with pytest.raises(InvariantBroken):
        world.runner.run_once()
    world.runner.run_once()
    assert acting.given() == [first, second]


def attempt_of(job: Job) -> Attempt:
    assert job.attempt is not None
    return job.attempt


# -------------------------------------------------------------------- dialled connections


def test_dialled_connections_have_half_of_all_connections() -> None:
    """R217. A bug: 256 descriptors were all taken by endpoints that Powerhose workers had registered: the broker could
    accept nobody, and could not open its own files."""
    world = World()
    soon: list[Callable[[], None]] = []
    dialled: list[StreamConnection] = []
    runner = Runner(
        world.broker,
        NullStore(),
        lambda: world.now,
        lambda *_, **__: None,
        AdmissionLimits(max_connections=40),
        dialler=lambda peer, place: dialled.append(peer),
        later=lambda seconds, call: soon.append(call),
    )
    hog, other = (cast(Any, FakeSession()) for _ in range(2))

    def dial(session: Any) -> StreamConnection:
        return runner.connections.dial(session, "tcp://127.0.0.1:1", "work", Zmtp("DEALER"), LOCAL_OWNER)

    peers = [dial(hog) for _ in range(30)]
    assert len(dialled) == 20
    for call in soon:
        call()
    problem = "20 connections are dialled, the maximum (half of max_connections)"
    assert [peer.closing for peer in peers] == [None] * 20 + [problem] * 10
    assert len(hog.losses) == 10
    for _ in range(20):
        dial(other)
    assert len(dialled) == 36, "another broker side always has 16"
    runner.connections.registry.lose(peers[0], "over")
    runner.connections.registry.lose(peers[1], "over")
    assert runner.connections.registry.admission.dial_rejection(hog) is not None
    for peer in [*dialled]:
        runner.connections.registry.lose(peer, "over")
    for call in soon:
        call()
    assert runner.connections.registry.admission._dialled == {}
    dial(hog)
    assert len(dialled) == 37
