"""The broker's connection to NATS without sockets: dials, moves, failures and secrets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dragoman.carriers.carrier import Carrier, Frame
from dragoman.carriers.nats import Nats
from dragoman.carriers.nats_connect import ConnectOptions, Credentials, TokenCredentials
from dragoman.cluster.nats_address import parse_nats
from dragoman.cluster.nats_client import NatsClient, Published
from dragoman.cluster.nats_side import NatsSide, NatsState
from dragoman.cluster.server_pool import ServerPool
from dragoman.core.owners import Owner
from dragoman.core.recipients import Effect
from dragoman.dialects.interface import BrokerIO, BrokerSide, Connection
from dragoman.testing.entropy import SeededEntropy
from owners import LOCAL_OWNER

INFO = b'INFO {"headers":true,"server_name":"%b","connect_urls":["c:1"]}\r\n'


class Link(Connection):
    """A connection without a socket."""

    def __init__(self, side: BrokerSide, place: object, carrier: Carrier, owner: Owner) -> None:
        super().__init__(side, owner)
        self.place = str(place)
        self.carrier = carrier
        self.closing = None
        self.remote = None
        self.sent: list[list[Frame]] = []


class World(BrokerIO):
    """A NatsSide, and the connections that it dialled."""

    def __init__(self, url: str = "nats://a,b", credentials: Credentials | None = None) -> None:
        self.links: list[Link] = []
        self.lines: list[tuple[str, dict[str, object]]] = []
        self.client = NatsClient(b"in")
        self.credentials = credentials or Credentials()
        pool = ServerPool(parse_nats(url), SeededEntropy(1).jitter)
        self.side = NatsSide(self, self.client, pool, lambda: ConnectOptions(credentials=self.credentials), LOCAL_OWNER)

    def dial(
        self, session: BrokerSide, place: object, socket_name: str, carrier: Carrier, owner: Owner, limits: Any = None
    ) -> Connection:
        self.links.append(Link(session, place, carrier, owner))
        return self.links[-1]

    def send(self, to: Connection, frames: Sequence[Frame], tag: object = None) -> None:
        assert isinstance(to, Link)
        to.sent.append(list(frames))

    def close(self, whom: Connection, reason: str) -> None:
        whom.closing = reason

    def remark(self, event: str, /, *, level: str = "info", peer: Connection | None = None, **fields: object) -> None:
        self.lines.append((event, fields))

    def remark_limited(self, event: str, /, *, peer: Connection, level: str = "info", **fields: object) -> None:
        self.lines.append((event, fields))

    def log_limited(self, event: str, /, *, peer: Connection | None = None, **fields: object) -> None:
        self.lines.append((event, fields))

    def open(self, link: Link, now: float) -> None:
        link.carrier.feed(INFO % link.place[:1].encode() + b"PONG\r\n")
        assert link.carrier.ready
        self.side.opened(link, now)

    def hear(self, link: Link, data: bytes, now: float) -> None:
        for message in link.carrier.feed(data):
            self.side.receive(link, message, now)

    def lose(self, link: Link, reason: str, now: float) -> None:
        link.closing = link.closing or reason
        self.side.lost(link, [], now)


def test_a_server_is_dialled_at_once_and_only_one() -> None:
    world = World()
    assert world.side.phase is NatsState.AWAY
    world.side.tick(0.0)
    world.side.tick(0.1)
    assert (len(world.links), world.side.phase) == (1, NatsState.DIALLING)
    assert world.client.publish(b"x", b"") is Published.AWAY
    world.open(world.links[0], 1.0)
    assert world.side.phase is NatsState.CONNECTED
    assert world.links[0].sent == [[b"SUB in.* 1\r\n"]]
    world.side.tick(2.0)
    assert len(world.links) == 1


def test_another_server_is_dialled_after_a_failure_and_all_wait_after_all_failed() -> None:
    world = World()
    world.side.tick(0.0)
    world.lose(world.links[0], "connection refused", 0.0)
    world.side.tick(0.0)
    assert {each.place for each in world.links} == {"a:4222", "b:4222"}
    world.lose(world.links[1], "connection refused", 0.0)
    due = world.side.tick(0.0)
    assert (len(world.links), world.side.phase) == (2, NatsState.AWAY)
    assert 0.05 <= due <= 0.15
    world.side.tick(due)
    assert len(world.links) == 3
    assert [event for event, _ in world.lines] == ["nats unreachable", "nats unreachable"]
    assert world.lines[0][1]["reason"] == "connection refused"


def test_the_client_moves_to_another_server_when_its_connection_ends() -> None:
    world = World()
    world.side.tick(0.0)
    world.open(world.links[0], 0.0)
    world.lose(world.links[0], "the peer closed the connection", 1.0)
    assert not world.client.is_connected
    world.side.tick(1.0)
    assert world.links[1].place != world.links[0].place
    world.open(world.links[1], 1.0)
    assert world.client.is_connected
    assert "c:1" in [str(each) for each in world.side.pool.places]
    world.lose(world.links[0], "late", 2.0)  # of an earlier connection
    assert world.client.is_connected


def test_a_server_that_stops_is_left_when_another_is_open() -> None:
    world = World("nats://a")
    world.side.tick(0.0)
    first = world.links[0]
    world.open(first, 0.0)
    world.hear(first, b'INFO {"headers":true,"ldm":true,"connect_urls":["a:4222","c:1"]}\r\n', 1.0)
    assert world.side.phase is NatsState.MOVING
    assert world.client.is_connected
    world.side.tick(1.0)
    assert world.links[1].place == "c:1"
    world.open(world.links[1], 1.5)
    assert (world.side.phase, first.closing is not None) == (NatsState.CONNECTED, True)
    world.hear(first, b"-ERR 'late'\r\n", 1.6)
    world.lose(first, "closed", 1.6)
    assert world.client.is_connected
    assert "nats error" not in [event for event, _ in world.lines]


def test_a_server_that_stops_before_another_is_open_is_replaced_after_its_end() -> None:
    world = World("nats://a")
    world.side.tick(0.0)
    world.open(world.links[0], 0.0)
    world.hear(world.links[0], b'INFO {"headers":true,"ldm":true,"connect_urls":["c:1"]}\r\n', 1.0)
    world.side.tick(1.0)
    world.lose(world.links[0], "the peer closed the connection", 1.2)
    assert world.side.phase is NatsState.DIALLING
    world.open(world.links[1], 1.5)
    assert world.side.phase is NatsState.CONNECTED


def test_errors_of_the_server_are_logged() -> None:
    world = World()
    world.side.tick(0.0)
    world.open(world.links[0], 0.0)
    world.hear(world.links[0], b"-ERR 'Permissions Violation'\r\n", 0.0)
    assert ("nats error", {"reason": "Permissions Violation"}) in world.lines


def test_time_outs_of_requests_are_its_deadlines() -> None:
    world = World()
    world.side.tick(0.0)
    world.open(world.links[0], 0.0)
    ended: list[float] = []

    def done(answer: object, now: float) -> bool:
        ended.append(now)
        return False

    world.client.request(b"x", b"", b"", done, 5.0, 1.0)
    assert world.side.tick(1.0) == 6.0
    world.side.tick(6.0)
    assert ended == [6.0]


def test_credentials_are_asked_for_at_each_dial() -> None:
    world = World("nats://127.0.0.1", TokenCredentials("old"))
    world.side.tick(0.0)
    world.credentials = TokenCredentials("new")
    world.lose(world.links[0], "refused", 0.0)
    world.side.tick(5.0)
    for link in world.links:
        link.carrier.feed(INFO % b"x")
    shown = [link.carrier.outgoing[0] for link in world.links]
    assert [b'"auth_token":"old"' in shown[0], b'"auth_token":"new"' in shown[1]] == [True, True]


def test_a_secret_is_sent_in_plain_to_no_other_machine() -> None:
    """R112: neither to a server of the address, nor to one that a server names."""
    with pytest.raises(ValueError, match="a token or a password would be sent to b:4222 without TLS"):
        World("nats://localhost,b", TokenCredentials("s"))
    World("tls://b", TokenCredentials("s"))
    world = World("nats://127.0.0.1", TokenCredentials("s"))
    world.side.tick(0.0)
    world.open(world.links[0], 0.0)  # names c
    world.lose(world.links[0], "gone", 0.0)
    for step in range(200):
        world.side.tick(step / 10)
        if len(world.links) > 2:
            world.lose(world.links.pop(), "refused", step / 10)
    assert {each.place for each in world.links} == {"127.0.0.1:4222"}


def test_a_closed_side_dials_no_more() -> None:
    world = World()
    world.side.tick(0.0)
    world.open(world.links[0], 0.0)
    world.side.close()
    assert world.links[0].closing == "the broker stops"
    world.lose(world.links[0], "", 0.0)
    world.side.tick(10.0)
    assert (len(world.links), world.side.phase) == (1, NatsState.AWAY)


def test_it_has_no_jobs() -> None:
    with pytest.raises(AssertionError, match="no jobs"):
        World().side.execute(Effect(), 0.0)


def test_the_carrier_of_a_dial_is_one_of_nats() -> None:
    world = World("tls://a?ca=x&tls_first=true")
    world.side.tick(0.0)
    carrier = world.links[0].carrier
    assert isinstance(carrier, Nats)
    assert carrier.begins_tls
