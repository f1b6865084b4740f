"""Records of the broker side: workers, calls and connections with their requests."""

from __future__ import annotations

from typing import Final

from dragoman.carriers.carrier import Frame
from dragoman.core.infinity import inf
from dragoman.core.model import Attempt, Caller, Service, Worker
from dragoman.core.options import JobOptions
from dragoman.core.recipients import Recipient, RemoteWorker
from dragoman.dialects.interface import BrokerIO, Connection

WHOLE: Final = 16_384  # bytes; a message up to this size is hashed and parsed in one piece
PIECE: Final = 65_536  # bytes of a larger one that are hashed at a time, to avoid a second copy of all of it
NOTICED_WITHIN: Final = 2.0  # seconds by which the end of a connection may be noticed after its client has made another
OVERTAKEN_KEPT: Final = 8
DEAD_KEPT: Final = 256
NO_HEADER: Final = bytes(WHOLE + 1)  # longer than anything compared with it


# Facts that a request shares with its repetition on another connection: principal, address, request id, hash, process.
Key = tuple[str, str, bytes, int, int]


def key_of(peer: Connection, route: bytes, request_hash: int) -> Key:
    """Return the facts by which a repeated request on this connection is found."""
    return peer.owner.principal.name, peer.address, route[-4:], request_hash, peer.process


def may_be_back(lost: PendingCall | RemoteMemoDbWorker, peer: Connection) -> bool:
    """Tell if this connection can be a new one of the client or worker whose connection was lost.

    Principal, address, process, request id and message are equal, or it would not have been found. A connection that
    was open long before the other ended belongs to another client. A short time is allowed: the end may be noticed
    late.
    """
    return peer.since > lost.left_at - NOTICED_WITHIN


def fingerprint(body: Frame) -> int:
    """Return a keyed hash of the whole message. With the request id it identifies a repeated request.

    Python's hash of bytes is SipHash with a random key of this process: 64 bits that a client cannot control. It is the
    fastest available hash for every size. A large message may come as `bytes` or `bytearray`, depending on how the
    stream was cut; the hash is the same.
    """
    if len(body) <= PIECE:
        return hash(bytes(body))
    view = memoryview(body)
    return hash(tuple([hash(bytes(view[at : at + PIECE])) for at in range(0, len(body), PIECE)]))


class RemoteMemoDbWorker(RemoteWorker):
    """A worker, identified by the id that the broker assigned."""

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
        "principal",
        "process",
        "request_hash",
        "route",
        "service",
        "worker",
    )

    worker: Worker

    def __init__(self, id: bytes, peer: Connection, route: bytes, request_hash: int) -> None:
        self.id = id
        self.peer: Connection | None = peer  # the connection of its last request, while it is open
        self.principal = peer.owner.principal  # only its connections can use the id (R177)
        self.address = peer.address
        self.route = route  # of its last request
        self.request_hash = request_hash  # hash of that request
        self.answer: list[Frame] | None = None  # the reply; None while it is parked
        self.header = b""  # header of its last job, reused for the next one if equal
        self.service: Service | None = None
        self.options: JobOptions | None = None
        self.is_replayed = False  # the reply was sent on more than one connection
        self.overtaken: list[tuple[bytes, int]] = []  # requests that old connections may still deliver
        self.is_confirmed = False  # it has used its id
        self.process = 0  # process of its last connection, and the time of its end
        self.left_at = 0.0
        self.heartbeat_due = inf  # while it is parked
        self.alarm = inf
        self.alarm_number = 0

    @property
    def key(self) -> Key:
        return self.principal.name, self.address, self.route[-4:], self.request_hash, self.process

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that was sent and has no result yet, current or not."""
        return self.worker.held()

    def turn_from(self, request: bytes, request_hash: int) -> None:
        """Record that it uses another connection. The old one may still deliver copies of its last request and of this
        one: nothing older, because a connection keeps the order, and nothing newer."""
        self.overtaken += ((self.route[-4:], self.request_hash), (request, request_hash))
        del self.overtaken[:-OVERTAKEN_KEPT]


class PendingCall(Caller):
    """A caller's request: a caller for the core, until its reply can no longer be requested again."""

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
        super().__init__(recipient, peer.owner)
        self.peer: Connection | None = peer
        self.address = peer.address
        self.route = route
        self.request_hash = request_hash
        self.timeout = timeout  # as on the wire
        self.is_over = False  # it ended without a reply
        self.is_answered = False
        self.result: Frame = b""  # the reply, as long as it is kept
        self.answered_at = 0.0
        self.process = 0  # process of its last connection, and the time of its end
        self.left_at = 0.0

    @property
    def key(self) -> Key:
        return self.owner.principal.name, self.address, self.route[-4:], self.request_hash, self.process


class ConnectionRecord:
    """Workers and calls that share one connection."""

    __slots__ = ("answered", "dead", "header", "header_fields", "readies", "remotes", "waiting")

    def __init__(self) -> None:
        self.remotes: dict[RemoteMemoDbWorker, None] = {}
        self.readies: dict[bytes, RemoteMemoDbWorker] = {}  # workers that have sent only READY, by its route
        self.dead: dict[bytes, tuple[int, bytes]] = {}  # hash and id of removed ones of these, by route
        self.waiting: dict[bytes, PendingCall] = {}  # by route, oldest first
        self.answered: dict[bytes, PendingCall] = {}
        self.header = NO_HEADER  # header of the last plain JOB or RESULT, and its id, service and time-out
        self.header_fields = b"", "", 0

    def bury(self, remote: RemoteMemoDbWorker) -> None:
        """Remember a removed worker that has sent only READY, because its READY may be repeated."""
        self.dead[remote.route] = remote.request_hash, remote.id
        if len(self.dead) > DEAD_KEPT:
            del self.dead[next(iter(self.dead))]


def log_about_peer(io: BrokerIO, peer: Connection | None, event: str, **fields: object) -> None:
    """Log a warning about a connection, at most once a second."""
    if peer is not None:
        io.remark_limited(event, level="warning", peer=peer, **fields)
