"""Records that brokers of a cluster exchange, and their encoding in MessagePack.

A record is an array whose first element is its kind. Unknown trailing elements are ignored, so that a newer release may
add some. Times are durations in seconds: clocks of two brokers are never compared.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from dragoman.carriers.malformed import Malformed
from dragoman.cluster.names import NAME

VERSION: Final = 1
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # errors of a decoder


class Record(msgspec.Struct, array_like=True, frozen=True):
    """Base class of records."""


class Give(Record, frozen=True, tag=1):
    """A job for a worker of the receiver. `run_time`: seconds that it may run; None: no limit."""

    token: bytes
    job: bytes
    attempt: int
    service: str
    payload: bytes
    owner: str
    run_time: float | None = None
    priority: int = 5
    streams: bool = False  # parts of the result are sent as they arrive
    extras: str = ""  # as in core/extras_text.py; empty: none


class Busy(Record, frozen=True, tag=2):
    """The job was not started."""

    token: bytes


class Result(Record, frozen=True, tag=3):
    """The job is done."""

    token: bytes
    result: bytes


class Failed(Record, frozen=True, tag=4):
    """The attempt ended without a result. `failure`: a packed failure (core/failure.py); empty: none."""

    token: bytes
    outcome: str
    reason: str
    failure: bytes = b""


class Progress(Record, frozen=True, tag=5):
    """A progress report, or a part of the result."""

    token: bytes
    payload: bytes
    is_part: bool = False


class Recall(Record, frozen=True, tag=6):
    """The attempt has ended at the sender: stop the job."""

    token: bytes
    reason: str


class Free(Record, frozen=True, tag=7):
    """Slots of a service that are free, after everything that this packet acknowledges."""

    service: str
    idle: int


class Seek(Record, frozen=True, tag=8):
    """The sender has adopted the job of this attempt, which a worker of the receiver had. It waits for the outcome."""

    token: bytes


class Ack(Record, frozen=True, tag=9):
    """The outcome of an attempt at a background job is in the log, or does not matter any more."""

    token: bytes


class LetGo(Record, frozen=True, tag=10):
    """An operator wants the receiver to give its shards to others."""


class Ask(Record, frozen=True, tag=11):
    """An operation for the receiver to execute. `request`: JSON, as a native client sends it.

    `principal`, `address`, `label`, `dialect` and `origin` are those of the client. The receiver trusts brokers of its
    cluster for them, and checks the rights of the principal in its own access table. `shard`: the receiver must have
    it; None: no shard is needed. `proves`: the answer names the shards that are proved to be at the receiver.
    """

    number: int
    operation: str
    request: bytes
    principal: str
    payload: bytes = b""
    shard: int | None = None
    address: str = ""
    label: str = ""
    dialect: str = ""
    origin: str = ""
    proves: bool = False


class Answer(Record, frozen=True, tag=12):
    """The response to an operation: a view in JSON; or an error, if `kind` is not empty.

    `confirmed`: of a list, or of the error `not found`, the shards of which the sender has proved that they are its
    own, one byte each. `has_imports`: jobs were imported, so that one may be in another shard than its id says.
    """

    number: int
    view: bytes = b""
    payload: bytes = b""
    failure: bytes = b""  # packed (core/failure.py); empty: none
    kind: str = ""
    detail: str = ""
    confirmed: bytes = b""
    has_imports: bool = False


class Leave(Record, frozen=True, tag=13):
    """Nobody waits for the response any more."""

    number: int


class TenantUse(msgspec.Struct, array_like=True, frozen=True):
    """Jobs of one tenant at one broker."""

    principal: str
    tenant: str
    running: int
    waiting: int = 0


class LimitUse(msgspec.Struct, array_like=True, frozen=True):
    """Jobs of a limited service that one broker counts, the tokens of its rate that it has, and those that it returns.

    `taken`: jobs of others that its workers run, by the run of the broker that counts them; empty: that is gone.
    """

    running: int
    waiting: int
    tokens: int
    returned: int
    tenants: list[TenantUse]
    taken: dict[str, list[TenantUse]]


class PrincipalUse(msgspec.Struct, array_like=True, frozen=True):
    """The use of a principal's limits at one broker. Numbers without a limit are 0.

    `blocked`: jobs that wait because of `max_running`. `submits`: tenths of `max_rate` that its callers try to use.
    `taken`: its jobs of others that workers of the broker run, by the run of the broker that counts them; empty: that
    is gone. `is_here`: what waits is limited, and the principal is connected, or has jobs that wait.
    """

    running: int
    blocked: int
    submits: int
    waiting: int
    waiting_bytes: int
    peers: int
    taken: dict[str, int]
    is_here: bool = False


class Report(Record, frozen=True, tag=14):
    """The use of limits at the sender. `after`: number of the last grants that it has received; 0: none.
    `principals`: those that use something of a limit."""

    number: int
    after: int
    uses: dict[str, LimitUse]
    principals: dict[str, PrincipalUse] = {}


class Share(msgspec.Struct, array_like=True, frozen=True):
    """The part of a service's limits that the receiver may use. `tokens`: more starts of its rate. `running`: by
    broker, for people."""

    slots: int
    tokens: int
    tenants: list[TenantUse]
    running: dict[str, int]


class PrincipalGrant(msgspec.Struct, array_like=True, frozen=True):
    """The part of a principal's limits that the receiver may use. `running`: by broker, for people.
    `batch`, `batch_bytes`: as `waiting` and `waiting_bytes`, for a batch."""

    slots: int
    rate: float
    waiting: int
    waiting_bytes: int
    batch: int
    batch_bytes: int
    peers: int
    running: dict[str, int]


class Grants(Record, frozen=True, tag=15):
    """Shares of all limited services; none of those that are missing. `report`: the last that the sender has seen.

    `principals`: those that use something of a limit at any broker. `is_divided`: the sender knows what all brokers
    use, so that principals which are missing use nothing.
    """

    number: int
    report: int
    shares: dict[str, Share]
    principals: dict[str, PrincipalGrant] = {}
    is_divided: bool = False


class TableLimit(msgspec.Struct, array_like=True, frozen=True):
    """Limits of one principal in an access table, as in core/rights.py."""

    max_waiting: int | None = None
    max_waiting_bytes: int | None = None
    max_running: int | None = None
    max_payload: int | None = None
    max_rate: float | None = None
    max_peers: int | None = None


class TableLimits(Record, frozen=True, tag=16):
    """The limits in the access table of the sender. `access`: its digest. For brokers with another table."""

    access: str
    limits: dict[str, TableLimit]


class Held(Record, frozen=True, tag=21):
    """A worker of the sender runs this attempt, which another broker was given: it has come with it (R119)."""

    token: bytes
    service: str


class Left(Record, frozen=True, tag=22):
    """The worker of this attempt has left the sender with it, for another broker (R119)."""

    token: bytes


class Returned(Record, frozen=True, tag=23):
    """The attempt was never started. Like Busy, for the owner of the shard, if that has not sent the job itself."""

    token: bytes


class WatchEvents(Record, frozen=True, tag=26):
    """The sender wants events of the receiver for `lease` seconds; 0: no more. It repeats the record before the end.

    `query`: the filters of an event stream, as JSON. `principal`: the reader, whose rights the receiver checks in its
    own access table. `job`: only events of this job; empty: of all.
    """

    number: int
    lease: float
    query: bytes = b""
    principal: str = ""
    job: bytes = b""


class WatchedEvents(Record, frozen=True, tag=27):
    """Events for a watch of the receiver (server/packed_events.py), and the number of those that were left out."""

    number: int
    events: bytes
    skipped: int = 0


class Look(Record, frozen=True, tag=24):
    """Readers of the sender's dashboard want to see the receiver, too. `number`: that of the `Seen` that answers.

    `snapshots`: principals, each with the service whose snapshot is wanted; empty: all. `pages`: principals, each with
    a page. The receiver checks their rights in its own access table.
    """

    number: int
    snapshots: list[tuple[str, str]]
    pages: list[tuple[str, str]]


class Seen(Record, frozen=True, tag=25):
    """The snapshots and the parts of pages that were asked for, in the same order, in JSON."""

    number: int
    snapshots: list[bytes]
    pages: list[bytes]


class Watch(Record, frozen=True, tag=18):
    """Jobs of a shard that the sender owns wait for a job or group of another shard; or none does any more.

    `shard`, `epoch`: of the jobs that wait. The receiver pins the predecessor, and answers with Watched at once and
    whenever it changes. `wants_results`: the answer has its results, if it has ended.
    """

    shard: int
    epoch: int
    predecessor: bytes
    is_waiting: bool = True
    wants_results: bool = False


class Watched(Record, frozen=True, tag=19):
    """The committed state of a job or group that jobs of another shard wait for. `shard`: that of the jobs that wait.

    `home`: shard of the predecessor; -1: the sender does not have it in any of the shards `searched`. `problem`: a
    sentence if it is not done, or a part of it. `results`: of the job, or of all members of the group, in their order;
    None for one that is not done.
    """

    shard: int
    predecessor: bytes
    home: int
    is_ended: bool = False
    problem: str = ""
    has_results: bool = False
    results: list[bytes | None] = []
    is_group: bool = False
    searched: list[int] = []


AnyRecord = (
    Give
    | Busy
    | Result
    | Failed
    | Progress
    | Recall
    | Free
    | Seek
    | Ack
    | LetGo
    | Ask
    | Answer
    | Leave
    | Report
    | Grants
    | TableLimits
    | Held
    | Left
    | Returned
    | WatchEvents
    | WatchedEvents
    | Look
    | Seen
    | Watch
    | Watched
)
Outcome = Result | Failed | Left | Returned  # of a background attempt at one broker


class Packet(msgspec.Struct, array_like=True, frozen=True):
    """One NATS message of a link. `body`: encoded records, or a fragment of them; `number` 0: it has none.

    `acknowledged`: number up to which the sender has received everything. `is_last`: the body ends with this packet.
    `link`: number of the sender's end of the link. `other`: that of the receiver's end, as far as it is known.
    `identity`: of the layout of the sender's logs (layout.py); empty: not known yet.
    """

    version: int
    broker: str
    incarnation: str
    number: int
    acknowledged: int
    is_last: bool
    body: bytes
    link: int = 0
    other: int = 0
    identity: str = ""


_encoder: Final = msgspec.msgpack.Encoder()
_records: Final = msgspec.msgpack.Decoder(list[AnyRecord])
_packet: Final = msgspec.msgpack.Decoder(Packet)


def encode_records(records: list[AnyRecord]) -> bytes:
    return _encoder.encode(records)


def read_records(body: bytes) -> list[AnyRecord]:
    """Raises Malformed."""
    try:
        return _records.decode(body)
    except UNREADABLE as error:
        raise Malformed("bad records", str(error)) from error


def encode_packet(packet: Packet) -> bytes:
    return _encoder.encode(packet)


def read_packet(data: bytes) -> Packet:
    """Raises Malformed."""
    try:
        packet = _packet.decode(data)
    except UNREADABLE as error:
        raise Malformed("bad packet", str(error)) from error
    check_sender(packet.version, packet.broker, packet.incarnation)
    return packet


@lru_cache(maxsize=1024)
def check_sender(version: int, broker: str, incarnation: str) -> None:
    """Raise Malformed for a message of another version, or of a sender whose names cannot be in a subject."""
    if version != VERSION:
        raise Malformed("other version", f"version {version}; this broker reads {VERSION}")
    if NAME.fullmatch(broker) is None or NAME.fullmatch(incarnation) is None:
        raise Malformed("bad sender", f"broker {broker!r}, incarnation {incarnation!r}")
