"""Who has asked what: the session's records of workers, calls and connections."""

from __future__ import annotations

from typing import Final

from dragoman.carriers.carrier import Frame
from dragoman.core.infinity import inf
from dragoman.core.model import Attempt, Caller, Service, Worker
from dragoman.core.options import JobOptions
from dragoman.core.recipients import Recipient, RemoteWorker
from dragoman.dialects.interface import BrokerIO, Connection

WHOLE: Final = 16_384  # a message up to this size is hashed and read in one piece
PIECE: Final = 65_536  # of a larger one: what is hashed at a time, so that no second copy of all of it is made
NOTICED_WITHIN: Final = 2.0  # seconds: the end of a connection, while its client has made another
OVERTAKEN_KEPT: Final = 8
DEAD_KEPT: Final = 256
NO_HEADER: Final = bytes(WHOLE + 1)  # nothing that is compared with it is as long


# Facts that a request shares with its repetition on another connection: address, request id, imprint and process.
Key = tuple[str, bytes, int, int]


def may_be_back(lost: PendingCall | MemoDbWorker, peer: Connection) -> bool:
    """Whether this connection can be a new one of the client or worker whose connection was lost.

    Its address, process, request id and message are the same, or it would not have been found. A connection that was
    open long before the other ended belongs to somebody else. Not just before: the end may be noticed late.
    """
    return peer.since > lost.left_at - NOTICED_WITHIN


def fingerprint(body: Frame) -> int:
    """A keyed hash of the whole message. With the request id it tells whether a request is an earlier one, repeated.

    Python's own hash of bytes is SipHash with a random key of this process: 64 bits that a peer cannot steer. Of the
    hashes at hand it is the fastest for every size. A large message may come as `bytes` or as `bytearray`, depending on
    how the stream was cut, and has the same imprint as either.
    """
    if len(body) <= PIECE:
        return hash(bytes(body))
    view = memoryview(body)
    return hash(tuple([hash(bytes(view[at : at + PIECE])) for at in range(0, len(body), PIECE)]))


class MemoDbWorker(RemoteWorker):
    """One worker: whoever speaks under the id we gave it."""

    __slots__ = (
        "address",
        "alarm",
        "alarm_number",
        "answer",
        "header",
        "heartbeat_due",
        "id",
        "is_confirmed",
        "is_replayed",
        "left_at",
        "options",
        "overtaken",
        "peer",
        "process",
        "request_hash",
        "route",
        "service",
        "worker",
    )

    worker: Worker

    def __init__(self, id: bytes, peer: Connection, route: bytes, request_hash: int) -> None:
        self.id = id
        self.peer: Connection | None = peer  # where its last request came from, while that connection lives
        self.address = peer.address
        self.route = route  # of its last request
        self.request_hash = request_hash  # that request's imprint
        self.answer: list[Frame] | None = None  # what it was answered; None while it is parked
        self.header = b""  # what its last job was sent with, and the next if it is one like that
        self.service: Service | None = None
        self.options: JobOptions | None = None
        self.is_replayed = False  # that was said on more than one connection
        self.overtaken: list[tuple[bytes, int]] = []  # requests that may still come by connections it has left
        self.is_confirmed = False  # it has shown that it knows its id
        self.process = 0  # whose connection ended last, and when
        self.left_at = 0.0
        self.heartbeat_due = inf  # while it is parked
        self.alarm = inf
        self.alarm_number = 0

    @property
    def key(self) -> Key:
        return self.address, self.route[-4:], self.request_hash, self.process

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that it was sent and has not answered, current or not. The core knows."""
        return self.worker.held()

    def turn_from(self, request: bytes, request_hash: int) -> None:
        """It comes by another connection. Of what it sent by the old one, copies of its last request and of this one
        may have been left behind: nothing older, for a connection keeps its order, and nothing newer."""
        self.overtaken += ((self.route[-4:], self.request_hash), (request, request_hash))
        del self.overtaken[:-OVERTAKEN_KEPT]


class PendingCall(Caller):
    """One caller's request: a caller to the core, from the JOB to the last time its answer may be asked for."""

    __slots__ = (
        "address",
        "answered_at",
        "is_answered",
        "is_over",
        "left_at",
        "peer",
        "process",
        "request_hash",
        "result",
        "route",
        "timeout",
    )

    def __init__(self, recipient: Recipient, peer: Connection, route: bytes, request_hash: int, timeout: int) -> None:
        super().__init__(recipient)
        self.peer: Connection | None = peer
        self.address = peer.address
        self.route = route
        self.request_hash = request_hash
        self.timeout = timeout  # as it was on the wire
        self.is_over = False  # nobody will ask for it any more, and nobody is told
        self.is_answered = False
        self.result: Frame = b""  # once it is answered, as long as the answer is kept
        self.answered_at = 0.0
        self.process = 0  # whose connection ended last, and when
        self.left_at = 0.0

    @property
    def key(self) -> Key:
        return self.address, self.route[-4:], self.request_hash, self.process


class ConnectionRecord:
    """Whoever shares one connection."""

    __slots__ = ("answered", "dead", "header", "readies", "remotes", "said", "waiting")

    def __init__(self) -> None:
        self.remotes: dict[MemoDbWorker, None] = {}
        self.readies: dict[bytes, MemoDbWorker] = {}  # those of whom nothing but READY has come, by its route
        self.dead: dict[bytes, tuple[int, bytes]] = {}  # imprint and id of the latest that died so, by route
        self.waiting: dict[bytes, PendingCall] = {}  # by route, oldest first
        self.answered: dict[bytes, PendingCall] = {}
        self.header = NO_HEADER  # of the last plain JOB or RESULT that came, and what it said: id, service, time-out
        self.said = b"", "", 0

    def bury(self, remote: MemoDbWorker) -> None:
        """It died with nothing but READY said: that may come once more, on its way while it died."""
        self.dead[remote.route] = remote.request_hash, remote.id
        if len(self.dead) > DEAD_KEPT:
            del self.dead[next(iter(self.dead))]


def log_about_peer(io: BrokerIO, peer: Connection | None, event: str, **fields: object) -> None:
    """Log what a connection does wrong, once a second at most."""
    if peer is not None:
        io.remark_limited(event, level="warning", peer=peer, **fields)
