"""Subscribers of the broker's events as the runner calls them, and the log as one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dragoman.core.broker import Broker
from dragoman.core.events import (
    JOB_KINDS,
    SERVICE_PAUSED,
    SERVICE_RESUMED,
    WORKER_LEFT,
    Event,
    PublishEvent,
    ServiceEvent,
    Subscription,
    WorkerEvent,
)
from dragoman.core.model import Caller, WorkerId
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.policy import Policy
from dragoman.core.recipients import Recipient
from dragoman.core.rights import NO_LIMITS, Principal, Right, Rights
from dragoman.server.admission import AdmissionLimits
from dragoman.server.event_log import EventLog
from dragoman.server.reports import LINES, LINES_OF_SOURCE
from dragoman.server.runner import Runner
from dragoman.store.null import NullStore
from dragoman.testing.entropy import SeededEntropy
from owners import LOCAL_OWNER


class World:
    def __init__(self) -> None:
        self.now = 100.0
        self.lines: list[tuple[str, str, dict[str, Any]]] = []
        self.broker = Broker(Policy(), SeededEntropy())
        self.runner = Runner(self.broker, NullStore(), lambda: self.now, self.log, AdmissionLimits(), strict=True)

    def log(self, level: str, event: str, **fields: Any) -> None:
        self.lines.append((level, event, fields))

    def subscribe(self, kinds: int, also: Callable[[Event], object] = lambda _: None) -> Subscriber:
        return Subscriber(self, kinds, also)

    def pause(self) -> None:
        self.broker.operator.pause("s", "ann")
        self.runner.run_once()

    def write_log(self) -> EventLog:
        return EventLog(self.broker.events, self.log, drain_timeout=30.0)

    def come_and_go(self, origin: str) -> None:
        """A worker joins by the connection with this label, and leaves."""
        worker = self.broker.join(Recipient(), None, "w", ("s",), WorkerProfile(), self.now, LOCAL_OWNER, origin=origin)
        assert worker is not None
        self.broker.leave(worker, self.now, "it has gone")
        self.runner.run_once()


class Subscriber:
    """Records what it receives, then calls a function of the test."""

    def __init__(self, world: World, kinds: int, also: Callable[[Event], object]) -> None:
        self.received: list[tuple[Event, float]] = []
        self._also = also
        self.subscription: Subscription = world.broker.events.subscribe(kinds, self.receive)

    def receive(self, event: Event, now: float) -> None:
        self.received.append((event, now))
        self._also(event)


PAUSED = [(ServiceEvent(SERVICE_PAUSED, "s", "ann"), 100.0)]


@pytest.fixture
def world() -> World:
    return World()


def test_every_subscriber_gets_each_event_of_its_kinds_once(world: World) -> None:
    first, second = world.subscribe(SERVICE_PAUSED), world.subscribe(SERVICE_PAUSED | SERVICE_RESUMED)
    world.pause()
    world.broker.operator.resume("s", world.now)
    world.runner.run_once()
    assert first.received == PAUSED
    assert second.received == [*PAUSED, (ServiceEvent(SERVICE_RESUMED, "s"), 100.0)]


def test_a_subscriber_that_raises_is_logged_and_harms_nobody(world: World) -> None:
    def fall(_: Event) -> None:
        raise RuntimeError("clumsy")

    first, second = world.subscribe(SERVICE_PAUSED, fall), world.subscribe(SERVICE_PAUSED)
    world.pause()
    assert first.received == second.received == PAUSED
    ((level, event, fields),) = world.lines
    assert (level, event, fields["error"], fields["published"]) == (
        "error",
        "internal error",
        "RuntimeError('clumsy')",
        "paused",
    )
    assert world.broker.counters.internal_errors == 1


def test_a_subscriber_may_leave_while_it_receives(world: World) -> None:
    leaver = world.subscribe(SERVICE_PAUSED, lambda _: world.broker.events.unsubscribe(leaver.subscription))
    stays = world.subscribe(SERVICE_PAUSED)
    world.pause()
    world.broker.operator.resume("s", world.now)
    world.pause()
    assert leaver.received == PAUSED
    assert stays.received == PAUSED * 2


def test_a_subscriber_that_another_unsubscribes_gets_nothing_more(world: World) -> None:
    world.subscribe(SERVICE_PAUSED, lambda _: world.broker.events.unsubscribe(other.subscription))
    other = world.subscribe(SERVICE_PAUSED)
    world.pause()
    assert other.received == []


def test_a_subscriber_that_comes_while_an_event_is_handed_out_gets_the_next(world: World) -> None:
    late: list[Subscriber] = []
    world.subscribe(SERVICE_PAUSED, lambda _: late.append(world.subscribe(SERVICE_RESUMED | SERVICE_PAUSED)))
    world.pause()
    world.broker.operator.resume("s", world.now)
    world.runner.run_once()
    assert late[0].received == [(ServiceEvent(SERVICE_RESUMED, "s"), 100.0)]


def test_a_subscriber_may_act_on_the_broker(world: World) -> None:
    world.subscribe(SERVICE_PAUSED, lambda _: world.broker.operator.resume("s", world.now))
    resumed = world.subscribe(SERVICE_RESUMED)
    world.pause()
    assert resumed.received == [(ServiceEvent(SERVICE_RESUMED, "s"), 100.0)]


def test_the_log_says_that_the_broker_drains(world: World) -> None:
    world.write_log()
    world.broker.operator.close(world.now)
    world.runner.run_once()
    assert world.lines == [("info", "draining", {"running": 0, "seconds": 30.0})]


def test_the_log_costs_no_job_an_event(world: World) -> None:
    world.write_log()
    assert not world.broker.events.wanted & JOB_KINDS


def test_the_log_says_who_paused_a_service_and_that_it_was_resumed(world: World) -> None:
    world.write_log()
    world.pause()
    world.broker.operator.resume("s", world.now)
    world.runner.run_once()
    assert world.lines == [
        ("info", "service paused", {"service": "s", "by": "ann"}),
        ("info", "service resumed", {"service": "s"}),
    ]


def test_a_worker_without_a_connection_has_no_field_for_it(world: World) -> None:
    world.write_log()
    world.come_and_go("")
    about = {"worker": "w", "id": 1, "dialect": "?", "services": ["s"], "capacity": 1}
    assert world.lines == [
        ("info", "worker joined", about),
        ("info", "worker left", about | {"reason": "it has gone", "held": 0}),
    ]


def test_workers_of_an_earlier_run_have_no_lines(world: World) -> None:
    log = world.write_log()
    log.receive(WorkerEvent(WORKER_LEFT, WorkerId(1), "w", "?", (), 1, is_restored=True), world.now)
    assert world.lines == []


def test_a_peer_that_comes_and_goes_without_end_is_no_flood_of_lines(world: World) -> None:
    """R215. Each of its connections has another port."""
    world.write_log()
    for number in range(LINES_OF_SOURCE):
        world.come_and_go(f"192.0.2.1:{number}")
    assert len(world.lines) == LINES_OF_SOURCE
    world.come_and_go("192.0.2.2:1")
    assert [fields["peer"] for _, _, fields in world.lines[-2:]] == ["192.0.2.2:1"] * 2, "it does not silence another"
    world.now += 1.0
    world.come_and_go("192.0.2.1:9")
    left_out, joined, left = world.lines[-3:]
    counts = {"count": LINES_OF_SOURCE, "sources": {"192.0.2.1": LINES_OF_SOURCE}}
    assert left_out == ("warning", "log lines left out", counts)
    assert (joined[1], left[1]) == ("worker joined", "worker left")


def test_peers_that_come_and_go_without_end_are_no_flood_of_lines_together(world: World) -> None:
    world.write_log()
    for number in range(LINES):
        world.come_and_go(f"peer {number}")
    assert len(world.lines) == LINES


def test_a_refused_right_is_logged_and_counted_for_submit_join_and_offer() -> None:
    """R152. The advice names the services whose right is missing, and no others."""
    world = World()
    world.write_log()
    world.broker.principals.apply({"gpu": (Rights(work=("a", "b")), NO_LIMITS)})
    owner = Owner(world.broker.principals.named("gpu"))
    recipient = Recipient()
    assert world.broker.submit("mail", b"", Caller(recipient, owner), JobOptions(), world.now) is None
    assert world.broker.join(recipient, None, "w", ("a", "my mail"), WorkerProfile(), world.now, owner) is None
    worker = world.broker.join(recipient, None, "w", ("a",), WorkerProfile(), world.now, owner)
    assert worker is not None
    assert not world.broker.availability.offer(worker, ("b", "c"), world.now)
    world.broker.effects[:] = [each for each in world.broker.effects if isinstance(each, PublishEvent)]
    world.runner.run_once()
    lines = [(level, fields) for level, event, fields in world.lines if event == "right refused"]
    advice = "if it is to have this right: dragoman access allow gpu "
    about = {"principal": "gpu", "dialect": "?"}
    assert lines == [
        ("warning", {**about, "right": "call", "service": "mail", "advice": f"{advice}--call mail"}),
        ("warning", {**about, "right": "work", "service": "my mail", "advice": f"{advice}--work 'my mail'"}),
        ("warning", {**about, "right": "work", "service": "c", "advice": f"{advice}--work c"}),
    ]
    assert world.broker.counters.rights_refused == {("call", "?"): 1, ("work", "?"): 2}
    assert world.broker.counters.dropped == {}, "no second line about the job"


def test_refused_rights_are_limited_and_acts_of_administrators_are_not() -> None:
    world = World()
    world.write_log()
    owner = Owner(Principal("web"), "address 10.0.0.7")
    for number in range(2 * LINES):
        for _ in range(2):  # the same within a minute is not logged again
            world.broker.refused_rights.note(owner.principal, Right.SEE, (f"service {number % 3}",), "http")
        world.broker.events.administered(owner.principal, "purge", "mail", "10.0.0.7:50000")
    world.runner.run_once()
    events = [event for _, event, _ in world.lines]
    assert (events.count("right refused"), events.count("administered")) == (3, 2 * LINES)
    act = {"principal": "web", "operation": "purge", "target": "mail", "peer": "10.0.0.7:50000"}
    assert ("info", "administered", act) in world.lines
