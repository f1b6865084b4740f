"""Subscriptions, messages and requests of one program on NATS, over whichever connection there is at the moment.

A `NatsClient` is pure: its owner tells it when a connection has opened or ended, passes on what the carrier returns,
and calls `tick` with the time. It has at most one connection. When a new one opens, all subscriptions are made again.

**Guarantees of core NATS**, which are all that it has: messages of one publisher on one subject arrive in order, if
they arrive. A message is lost without a word if its receiver is not connected at that moment, or too slow. So callers
number their messages (`link.py`), or expect a reply with a time-out.

The order of calls on one connection is the order at the server. `flush` calls back when the server has processed all
calls before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, final

from mypy_extensions import mypyc_attr

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.nats import Nats
from dragoman.carriers.nats_info import ServerInfo
from dragoman.carriers.nats_lines import FLUSH, subscribe_line, unsubscribe_line
from dragoman.cluster.requests import MAX_REQUESTS, Answer, AnswerKind, Done, Requests

MAX_SUBSCRIPTIONS: Final = 1000
INBOX_SID: Final = b"1"

Send = Callable[[Sequence[Frame]], None]
Receive = Callable[[Frame, Frame, Frame, Frame, float], None]  # subject, reply, headers, payload, now


class Published(Enum):
    """The way of a message that was to be published."""

    SENT = auto()  # to the server, if the connection lives long enough; its receivers may not get it
    AWAY = auto()  # there is no connection
    TOO_LARGE = auto()  # over max_payload of the server


@mypyc_attr(allow_interpreted_subclasses=True)
class NatsWatcher:
    """Receives news about the connection. Every method may be left out."""

    def connected(self, info: ServerInfo, now: float) -> None:
        """A connection has opened, and all subscriptions are made."""

    def away(self, reason: str, now: float) -> None:
        """The connection has ended. Requests in flight have ended before."""

    def informed(self, info: ServerInfo, now: float) -> None:
        """The server has sent INFO again."""

    def error(self, text: str, now: float) -> None:
        """The server has reported an error, such as a missing permission. It closes the connection after most."""


@final
class Subscription:
    """A subscription, in all connections of its client."""

    __slots__ = ("queue", "receive", "sid", "subject")

    def __init__(self, sid: bytes, subject: bytes, queue: bytes, receive: Receive) -> None:
        self.sid = sid
        self.subject = subject
        self.queue = queue
        self.receive = receive


class NatsClient:
    """The state of a program on NATS."""

    def __init__(
        self,
        inbox: bytes,
        watcher: NatsWatcher | None = None,
        *,
        max_subscriptions: int = MAX_SUBSCRIPTIONS,
        max_requests: int = MAX_REQUESTS,
    ) -> None:
        """`inbox`: the subject below which replies come. It must be of this program, in this life, alone."""
        self.requests = Requests(inbox, max_requests)
        self._watcher = watcher or NatsWatcher()
        self._most = max_subscriptions
        self._last_sid = int(INBOX_SID)
        inbox_filter = self.requests.filter
        subscribe_line(INBOX_SID, inbox_filter)  # raises if the inbox is not a subject
        self._subscriptions: dict[Frame, Subscription] = {
            INBOX_SID: Subscription(INBOX_SID, inbox_filter, b"", self._receive_reply)
        }
        self._carrier: Nats | None = None
        self._send: Send = _nowhere
        self._flushes: deque[Callable[[bool, float], None]] = deque()
        self.strays = 0  # messages of subscriptions that had ended
        self.too_large = 0  # messages over our own limits, which were dropped

    # ---------------------------------------------------------------- calls of the program

    @property
    def is_connected(self) -> bool:
        return self._carrier is not None

    @property
    def info(self) -> ServerInfo | None:
        """Facts about the server, or None while there is no connection."""
        return None if self._carrier is None else self._carrier.info

    def subscribe(self, subject: bytes, receive: Receive, queue: bytes = b"") -> Subscription:
        """Subscribe, in this connection and all later ones. Raises ValueError."""
        if len(self._subscriptions) >= self._most:
            raise ValueError(f"{len(self._subscriptions)} subscriptions; max_subscriptions is {self._most}")
        sid = b"%d" % (self._last_sid + 1)
        line = subscribe_line(sid, subject, queue)
        self._last_sid += 1
        made = self._subscriptions[sid] = Subscription(sid, subject, queue, receive)
        if self._carrier is not None:
            self._send([line])
        return made

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription. Messages that are on their way are dropped."""
        if self._subscriptions.pop(subscription.sid, None) is not None and self._carrier is not None:
            self._send([unsubscribe_line(subscription.sid)])

    def publish(self, subject: bytes, payload: Frame, reply: bytes = b"", headers: bytes = b"") -> Published:
        """Publish a message, if there is a connection."""
        carrier = self._carrier
        if carrier is None:
            return Published.AWAY
        if len(headers) + len(payload) > carrier.info.max_payload:
            return Published.TOO_LARGE
        self._send([subject, reply, headers, payload])
        return Published.SENT

    def request(
        self, subject: bytes, payload: Frame, headers: bytes, done: Done, timeout: float, now: float
    ) -> bytes | None:
        """Publish a request. `done` is called with each answer, always at least once, and never within this call
        unless it returns None. Returns the subject for replies, by which `requests.cancel` ends it."""
        reply = self.requests.begin(done, timeout, now) if self._carrier is not None else None
        if reply is not None and self.publish(subject, payload, reply, headers) is not Published.SENT:
            self.requests.cancel(reply)
            reply = None
        if reply is None:
            done(Answer(AnswerKind.NOT_SENT), now)
        return reply

    def flush(self, done: Callable[[bool, float], None], now: float) -> None:
        """Call back with True when the server has processed all calls before this one; False: the connection ended."""
        if self._carrier is None:
            done(False, now)
            return
        self._flushes.append(done)
        self._send(FLUSH)

    # ---------------------------------------------------------------- calls of the owner of the connection

    def opened(self, carrier: Nats, send: Send, now: float) -> None:
        """Use a new connection, whose handshake is done. An earlier one is not used any more."""
        if self._carrier is not None:
            self.lost("another connection has opened", now)
        self._carrier = carrier
        self._send = send
        for each in self._subscriptions.values():
            send([subscribe_line(each.sid, each.subject, each.queue)])
        self._watcher.connected(carrier.info, now)

    def receive(self, message: Message | TooLarge, now: float) -> None:
        """Process a message of the carrier."""
        if isinstance(message, TooLarge):
            self.too_large += 1
            if message.frames[0] == INBOX_SID:
                self.requests.refuse(message.frames[1], now)
        elif len(message) == 5:
            subscription = self._subscriptions.get(message[0])
            if subscription is None:
                self.strays += 1
            else:
                subscription.receive(message[1], message[2], message[3], message[4], now)
        elif message[0] == b"PONG":
            if self._flushes:
                self._flushes.popleft()(True, now)
        elif message[0] == b"-ERR":
            self._watcher.error(message[1].decode("utf-8", "replace"), now)
        elif self._carrier is not None:
            self._watcher.informed(self._carrier.info, now)

    def lost(self, reason: str, now: float) -> None:
        """Stop to use the connection, because it has ended."""
        if self._carrier is None:
            return
        self._carrier = None
        self._send = _nowhere
        flushes, self._flushes = self._flushes, deque()
        for done in flushes:
            done(False, now)
        self.requests.end_all(AnswerKind.DISCONNECTED, now)
        self._watcher.away(reason, now)

    def tick(self, now: float) -> float:
        """End requests whose time is over. Returns the time of the next call."""
        return self.requests.tick(now)

    def _receive_reply(self, subject: Frame, reply: Frame, headers: Frame, payload: Frame, now: float) -> None:
        self.requests.receive(subject, headers, payload, now)


def _nowhere(frames: Sequence[Frame]) -> None:
    raise AssertionError("there is no connection")
