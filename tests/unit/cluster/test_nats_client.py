"""The client of NATS without a server: subscriptions over several connections, requests, flushes and news."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dragoman.carriers.carrier import Frame, TooLarge
from dragoman.carriers.nats import Nats
from dragoman.carriers.nats_info import ServerInfo
from dragoman.cluster.nats_client import NatsClient, NatsWatcher, Published
from dragoman.cluster.requests import Answer, AnswerKind

Told = tuple[bytes, bytes, bytes, bytes]


class World(NatsWatcher):
    """A client whose connections are lists."""

    def __init__(self) -> None:
        self.news: list[object] = []
        self.client = NatsClient(b"in", self, max_subscriptions=4, max_requests=2)
        self.sent: list[list[bytes]] = []
        self.told: list[Told] = []
        self.answers: list[AnswerKind] = []

    def connect(self, info: bytes = b'{"headers":true,"max_payload":100,"server_name":"a"}') -> None:
        self.carrier = Nats()
        self.carrier.feed(b"INFO " + info + b"\r\nPONG\r\n")
        assert self.carrier.ready
        self.client.opened(self.carrier, self.send, 1.0)

    def send(self, frames: Sequence[Frame]) -> None:
        self.sent.append([bytes(each) for each in frames])

    def take(self) -> list[list[bytes]]:
        sent, self.sent = self.sent, []
        return sent

    def hear(self, data: bytes) -> None:
        for message in self.carrier.feed(data):
            self.client.receive(message, 2.0)

    def receive(self, subject: Frame, reply: Frame, headers: Frame, payload: Frame, now: float) -> None:
        self.told.append((bytes(subject), bytes(reply), bytes(headers), bytes(payload)))

    def done(self, answer: Answer, now: float) -> bool:
        self.answers.append(answer.kind)
        return False

    def ask(self, payload: bytes = b"q") -> bytes | None:
        return self.client.request(b"ask", payload, b"", self.done, 5.0, 1.0)

    def connected(self, info: ServerInfo, now: float) -> None:
        self.news.append(("connected", info.server_name))

    def away(self, reason: str, now: float) -> None:
        self.news.append(("away", reason))

    def informed(self, info: ServerInfo, now: float) -> None:
        self.news.append(("informed", info.is_leaving))

    def error(self, text: str, now: float) -> None:
        self.news.append(("error", text))


def test_subscriptions_are_made_again_in_each_connection() -> None:
    world = World()
    world.client.subscribe(b"a.*", world.receive)
    assert world.take() == []
    world.connect()
    assert world.take() == [[b"SUB in.* 1\r\n"], [b"SUB a.* 2\r\n"]]
    kept = world.client.subscribe(b"b", world.receive, b"group")
    gone = world.client.subscribe(b"c", world.receive)
    world.client.unsubscribe(gone)
    world.client.unsubscribe(gone)
    assert world.take() == [[b"SUB b group 3\r\n"], [b"SUB c 4\r\n"], [b"UNSUB 4\r\n"]]
    world.client.lost("gone", 1.0)
    world.connect()
    assert world.take() == [[b"SUB in.* 1\r\n"], [b"SUB a.* 2\r\n"], [b"SUB b group 3\r\n"]]
    world.client.unsubscribe(kept)
    assert world.news == [("connected", "a"), ("away", "gone"), ("connected", "a")]


def test_messages_go_to_their_subscription() -> None:
    world = World()
    world.connect()
    world.client.subscribe(b"a", world.receive)
    world.hear(b"MSG a 2 r 2\r\nhi\r\nHMSG a 2 2 4\r\nHHhi\r\nMSG a 77 1\r\nx\r\n")
    assert world.told == [(b"a", b"r", b"", b"hi"), (b"a", b"", b"HH", b"hi")]
    assert world.client.strays == 1


def test_a_message_is_sent_or_not_and_the_caller_knows() -> None:
    world = World()
    assert world.client.publish(b"a", b"x") is Published.AWAY
    world.connect()
    world.take()
    assert world.client.publish(b"a", b"x" * 98, b"r", b"HH") is Published.SENT
    assert world.client.publish(b"a", b"x" * 99, b"", b"HH") is Published.TOO_LARGE
    assert world.take() == [[b"a", b"r", b"HH", b"x" * 98]]


def test_a_request_is_answered_over_the_inbox() -> None:
    world = World()
    world.connect()
    world.take()
    assert world.ask() == b"in.1"
    assert world.take() == [[b"ask", b"in.1", b"", b"q"]]
    world.hear(b"MSG in.1 1 2\r\nhi\r\n")
    assert world.answers == [AnswerKind.REPLY]


def test_a_request_that_cannot_be_sent_ends_at_once() -> None:
    world = World()
    assert world.ask() is None
    world.connect()
    assert world.ask(b"x" * 101) is None
    assert [world.ask(), world.ask(), world.ask()] == [b"in.2", b"in.3", None]
    assert world.answers == [AnswerKind.NOT_SENT] * 3
    assert world.client.tick(6.0) == float("inf")
    assert world.answers[3:] == [AnswerKind.TIMED_OUT] * 2


def test_requests_and_flushes_end_with_the_connection() -> None:
    world = World()
    flushed: list[bool] = []
    world.client.flush(lambda is_done, now: flushed.append(is_done), 1.0)
    world.connect()
    world.ask()
    world.client.flush(lambda is_done, now: flushed.append(is_done), 1.0)
    world.client.lost("cut", 2.0)
    world.client.lost("cut again", 2.0)
    assert (flushed, world.answers) == ([False, False], [AnswerKind.DISCONNECTED])
    assert (world.client.is_connected, world.client.info) == (False, None)
    assert world.news == [("connected", "a"), ("away", "cut")]


def test_a_new_connection_replaces_the_earlier_one() -> None:
    world = World()
    world.connect()
    world.ask()
    world.connect(b'{"server_name":"b"}')
    assert world.answers == [AnswerKind.DISCONNECTED]
    assert world.news == [("connected", "a"), ("away", "another connection has opened"), ("connected", "b")]


def test_a_flush_is_told_when_the_server_has_come_so_far() -> None:
    world = World()
    world.connect()
    order: list[str] = []
    world.client.flush(lambda is_done, now: order.append(f"first {is_done}"), 1.0)
    world.client.flush(lambda is_done, now: order.append(f"second {is_done}"), 1.0)
    assert world.take()[-2:] == [[b"PING\r\n"], [b"PING\r\n"]]
    for message in ([b"PONG"], [b"PONG"], [b"PONG"]):
        world.client.receive(message, 1.0)
    assert order == ["first True", "second True"]


def test_news_of_the_server_are_passed_on() -> None:
    world = World()
    world.connect()
    world.hear(b"-ERR 'Invalid Subject'\r\nINFO {\"ldm\":true}\r\n")
    assert world.news[1:] == [("error", "Invalid Subject"), ("informed", True)]


def test_messages_over_our_limits_are_counted_and_end_their_request() -> None:
    world = World()
    world.connect()
    world.ask()
    world.client.receive(TooLarge([b"1", b"in.1", b""], 1 << 30), 1.0)
    world.client.receive(TooLarge([b"9", b"a", b""], 1 << 30), 1.0)
    assert (world.answers, world.client.too_large) == ([AnswerKind.TOO_LARGE], 2)


def test_subscriptions_have_a_limit_and_a_form() -> None:
    world = World()
    for subject in (b"a", b"b", b"c"):
        world.client.subscribe(subject, world.receive)
    with pytest.raises(ValueError, match="max_subscriptions is 4"):
        world.client.subscribe(b"d", world.receive)
    with pytest.raises(ValueError, match="is not a subject"):
        NatsClient(b"in box")
    world = World()
    with pytest.raises(ValueError, match="is not a subject"):
        world.client.subscribe(b"a b", world.receive)
    world.connect()
    assert world.take() == [[b"SUB in.* 1\r\n"]]
