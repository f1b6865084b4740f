"""The broker's connection to NATS: dials a server, and another one when that is gone.

It is a broker side without jobs: the runner gives it a connection as to a worker that is dialled (`BrokerIO.dial`), and
detects silence by the carrier's PING. All that NATS carries goes through its `NatsClient`.

    AWAY        no connection; the next dial is at `ServerPool.next_try`
    DIALLING    a connection is being opened
    CONNECTED   the client uses the connection
    MOVING      the server stops soon (lame duck mode): the client uses its connection until another one is open

A secret, a token or a password, is sent only inside TLS or to this machine (R112).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any, Final, cast

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.nats import Encryption, Nats
from dragoman.carriers.nats_connect import ConnectOptions
from dragoman.carriers.nats_lines import DEFAULT_LIMITS, NatsLimits
from dragoman.cluster.nats_address import NatsAddress, NatsPlace, is_loopback
from dragoman.cluster.nats_client import NatsClient
from dragoman.cluster.server_pool import ServerPool
from dragoman.core.owners import Owner
from dragoman.core.recipients import Effect
from dragoman.dialects.interface import BrokerIO, BrokerSide, Connection

NATS: Final = "nats"  # the name of its connections


class NatsState(Enum):
    """State of the connection to NATS."""

    AWAY = auto()
    DIALLING = auto()
    CONNECTED = auto()
    MOVING = auto()


class NatsSide(BrokerSide):
    """Keeps a connection to one of the servers, and passes its messages to the client."""

    dialect = "nats"

    def __init__(
        self,
        io: BrokerIO,
        client: NatsClient,
        pool: ServerPool,
        options: Callable[[], ConnectOptions],
        owner: Owner,
        limits: NatsLimits = DEFAULT_LIMITS,
        connection_limits: Any = None,
    ) -> None:
        """`options` is called for each dial, because files of credentials are renewed. `connection_limits`: of the
        runner, with the times of PING and of silence. Raises ValueError if a secret would be sent in plain."""
        self.client = client
        self.pool = pool
        self._io = io
        self._options = options
        self._owner = owner
        self._limits = limits
        self._connection_limits = connection_limits
        self._dialled: Connection | None = None  # being opened
        self._used: Connection | None = None  # used by the client
        self._is_moving = False
        self._is_closed = False
        check_secrecy(pool.address, options())

    @property
    def phase(self) -> NatsState:
        if self._used is not None:
            return NatsState.MOVING if self._is_moving else NatsState.CONNECTED
        return NatsState.AWAY if self._dialled is None else NatsState.DIALLING

    def close(self) -> None:
        """End the connection, and dial no more."""
        self._is_closed = True
        for peer in (self._dialled, self._used):
            if peer is not None:
                self._io.close(peer, "the broker stops")

    # ---------------------------------------------------------------- calls from the runner

    def tick(self, now: float) -> float:
        due = self.client.tick(now)
        if self._is_closed or self._dialled is not None or (self._used is not None and not self._is_moving):
            return due
        place = self.pool.pick(now)
        if place is None:
            return min(due, self.pool.next_try())
        return due if self._dial(place, now) else min(due, self.pool.next_try())

    def opened(self, peer: Connection, now: float) -> None:
        if peer is not self._dialled:
            return
        before, self._dialled, self._used = self._used, None, peer
        self._is_moving = False
        dial = cast(Dial, peer.remote)
        self.pool.worked(dial.place, dial.carrier.info.connect_urls, now)
        self._io.remark("nats connected", peer=peer, server=dial.carrier.info.server_name)
        self.client.opened(dial.carrier, lambda frames: self._io.send(peer, frames), now)
        if before is not None:
            self._io.close(before, "the server stops, and another one is connected")

    def receive(self, peer: Connection, message: Message | TooLarge, now: float) -> None:
        if peer is not self._used:
            return  # of a server that stops, after the move
        self.client.receive(message, now)
        if isinstance(message, list) and len(message) == 2:
            dial = cast(Dial, peer.remote)
            if message[0] == b"INFO":
                self._take_info(dial, now)
            else:
                self._io.remark_limited("nats error", peer=peer, level="warning", reason=_shown(message[1]))

    def lost(self, peer: Connection, unsent: Sequence[object], now: float) -> None:
        dial = cast(Dial, peer.remote)
        reason = peer.closing or "the connection ended"
        if peer is self._dialled:
            self._dialled = None
            self.pool.failed(dial.place, now)
            self._io.log_limited("nats unreachable", server=str(dial.place), reason=reason)
        elif peer is self._used:
            self._used = None
            self._is_moving = False
            if not self._is_closed:
                self.pool.failed(dial.place, now)
                self._io.remark("nats disconnected", level="warning", peer=peer, reason=reason)
            self.client.lost(reason, now)

    def execute(self, effect: Effect, now: float) -> None:
        raise AssertionError("the connection to NATS has no jobs")

    # ---------------------------------------------------------------- dials

    def _dial(self, place: NatsPlace, now: float) -> bool:
        options = self._options()
        carrier = Nats(options, encryption=self.pool.address.encryption, limits=self._limits)
        if options.credentials.is_secret and not is_protected(place, self.pool.address.encryption):
            self.pool.failed(place, now)  # named by a server; those of the address have been checked
            return False
        peer = self._io.dial(self, place, NATS, carrier, self._owner, self._connection_limits)
        peer.remote = Dial(place, carrier)
        self._dialled = peer
        return True

    def _take_info(self, dial: Dial, now: float) -> None:
        info = dial.carrier.info
        self.pool.learn(dial.place, info.connect_urls)
        if info.is_leaving and not self._is_moving:
            self._is_moving = True
            self.pool.leaves(dial.place, now)
            self._io.remark("nats server stops", server=info.server_name)


class Dial:
    """The record of a connection: its server and its carrier."""

    __slots__ = ("carrier", "place")

    def __init__(self, place: NatsPlace, carrier: Nats) -> None:
        self.place = place
        self.carrier = carrier


def is_protected(place: NatsPlace, encryption: Encryption) -> bool:
    """True if a secret may be sent there (R112)."""
    return encryption is not Encryption.NONE or is_loopback(place)


def check_secrecy(address: NatsAddress, options: ConnectOptions) -> None:
    """Raise ValueError if a token or a password would travel in plain (R112)."""
    for place in address.places:
        if options.credentials.is_secret and not is_protected(place, address.encryption):
            raise ValueError(
                f"a token or a password would be sent to {place} without TLS; write tls:// instead of nats://, "
                "or use an nkey"
            )


def _shown(text: Frame) -> str:
    return text[:200].decode("utf-8", "replace")
