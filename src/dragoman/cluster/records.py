"""Records that brokers of a cluster exchange, and their encoding in MessagePack.

A record is an array whose first element is its kind. Unknown trailing elements are ignored, so that a newer release may
add some. Times are durations in seconds: clocks of two brokers are never compared.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dragoman.carriers.malformed import Malformed

VERSION: Final = 1


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
    it; None: no shard is needed.
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


class Answer(Record, frozen=True, tag=12):
    """The response to an operation: a view in JSON; or an error, if `kind` is not empty."""

    number: int
    view: bytes = b""
    payload: bytes = b""
    failure: bytes = b""  # packed (core/failure.py); empty: none
    kind: str = ""
    detail: str = ""


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


class Report(Record, frozen=True, tag=14):
    """The use of limits at the sender. `after`: number of the last grants that it has received; 0: none."""

    number: int
    after: int
    uses: dict[str, LimitUse]


class Share(msgspec.Struct, array_like=True, frozen=True):
    """The part of a service's limits that the receiver may use. `tokens`: more starts of its rate. `running`: by
    broker, for people."""

    slots: int
    tokens: int
    tenants: list[TenantUse]
    running: dict[str, int]


class Grants(Record, frozen=True, tag=15):
    """Shares of all limited services; none of those that are missing. `report`: the last that the sender has seen."""

    number: int
    report: int
    shares: dict[str, Share]


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
)


class Packet(msgspec.Struct, array_like=True, frozen=True):
    """One NATS message of a link. `body`: encoded records, or a fragment of them; `number` 0: it has none.

    `acknowledged`: number up to which the sender has received everything. `is_last`: the body ends with this packet.
    `link`: number of the sender's end of the link. `other`: that of the receiver's end, as far as it is known.
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


class ServiceGossip(msgspec.Struct, array_like=True, frozen=True):
    """Capacity of a broker for one service: its own workers, their slots, the free ones, and waiting jobs."""

    workers: int
    slots: int
    idle: int
    waiting: int = 0


class ServiceSetting(msgspec.Struct, array_like=True, frozen=True):
    """A pause and limits that operators have set for one service. `paused_for`: seconds; -1: not known."""

    is_paused: bool
    paused_by: str = ""
    paused_for: int = -1
    limited_by: str = ""
    max_running: int | None = None
    max_running_per_tenant: int | None = None
    rate: str | None = None


Settings = dict[str, ServiceSetting]


class DeclaredLimits(msgspec.Struct, array_like=True, frozen=True):
    """The lowest limits that workers of one broker have declared for a service."""

    max_running: int | None = None
    max_running_per_tenant: int | None = None
    rate: str | None = None


class Gossip(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of one broker, for all others. `got`: by broker, the last packet whose jobs are counted in `idle`."""

    version: int
    broker: str
    incarnation: str
    release: str = ""
    draining: bool = False
    services: dict[str, ServiceGossip] = {}
    got: dict[str, int] = {}
    access: str = ""  # digest of its access table
    uptime: int = 0  # seconds since its start
    shards: dict[int, int] = {}  # that it has, with the epoch of each
    limits: dict[str, DeclaredLimits] = {}  # declared by its own workers
    settings: bytes = b""  # pauses and limits, from the owner of shard 0 (service_settings.py); empty: not sent now
    ends: dict[int, int] = {}  # the last sequence of the log of each shard that it owns
    clock: float | None = None  # seconds by which its clock is ahead of that of NATS; None: not known


_encoder: Final = msgspec.msgpack.Encoder()
_records: Final = msgspec.msgpack.Decoder(list[AnyRecord])
_packet: Final = msgspec.msgpack.Decoder(Packet)
_gossip: Final = msgspec.msgpack.Decoder(Gossip)
_settings: Final = msgspec.msgpack.Decoder(Settings)


def encode_records(records: list[AnyRecord]) -> bytes:
    return _encoder.encode(records)


def read_records(body: bytes) -> list[AnyRecord]:
    """Raises Malformed."""
    try:
        return _records.decode(body)
    except msgspec.DecodeError as error:
        raise Malformed("bad records", str(error)) from error


def encode_packet(packet: Packet) -> bytes:
    return _encoder.encode(packet)


def read_packet(data: bytes) -> Packet:
    """Raises Malformed."""
    try:
        packet = _packet.decode(data)
    except msgspec.DecodeError as error:
        raise Malformed("bad packet", str(error)) from error
    if packet.version != VERSION:
        raise Malformed("other version", f"version {packet.version}; this broker reads {VERSION}")
    return packet


def encode_gossip(gossip: Gossip) -> bytes:
    return _encoder.encode(gossip)


def read_gossip(data: bytes) -> Gossip:
    """Raises Malformed."""
    try:
        gossip = _gossip.decode(data)
    except msgspec.DecodeError as error:
        raise Malformed("bad gossip", str(error)) from error
    if gossip.version != VERSION:
        raise Malformed("other version", f"version {gossip.version}; this broker reads {VERSION}")
    return gossip


def encode_settings(settings: Settings) -> bytes:
    return _encoder.encode(settings)


def read_settings(data: bytes) -> Settings:
    """Raises Malformed."""
    try:
        return _settings.decode(data)
    except msgspec.DecodeError as error:
        raise Malformed("bad settings", str(error)) from error
