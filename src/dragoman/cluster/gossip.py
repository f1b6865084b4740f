"""Gossip: the state of one broker, for all others, and its encoding in MessagePack."""

from __future__ import annotations

from typing import Final

import msgspec

from dragoman.carriers.malformed import Malformed
from dragoman.cluster.records import UNREADABLE, check_sender


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
    identity: str = ""  # of the layout of its logs (layout.py); empty: not known yet
    workers: int = 0  # its own, each counted once
    idle: int = 0  # their free slots, at most a second old
    resting: bool = False  # it leaves shards to others for a while
    stopped: bool = False  # this is its last gossip


_encoder: Final = msgspec.msgpack.Encoder()
_gossip: Final = msgspec.msgpack.Decoder(Gossip)
_settings: Final = msgspec.msgpack.Decoder(Settings)


def encode_gossip(gossip: Gossip) -> bytes:
    return _encoder.encode(gossip)


def read_gossip(data: bytes) -> Gossip:
    """Raises Malformed."""
    try:
        gossip = _gossip.decode(data)
    except UNREADABLE as error:
        raise Malformed("bad gossip", str(error)) from error
    check_sender(gossip.version, gossip.broker, gossip.incarnation)
    return gossip


def encode_settings(settings: Settings) -> bytes:
    return _encoder.encode(settings)


def read_settings(data: bytes) -> Settings:
    """Raises Malformed."""
    try:
        return _settings.decode(data)
    except UNREADABLE as error:
        raise Malformed("bad settings", str(error)) from error
