"""Workers and callers of several dialects for the scenarios of access, written by hand on the pairs' connections.

Each belongs to a principal. A worker can be robbed: `forge` opens a connection of another principal and sends a result
in its name. A MemoDB caller can be impersonated: `repeated_by` sends its last request again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from io import BytesIO
from itertools import count
from typing import Any

import cbor2

from dragoman.carriers.curve_keys import new_key_pair
from dragoman.carriers.sp import Sp
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_curve import zmtp_carrier
from dragoman.carriers.zmtp_curve_handshake import CurveClient
from dragoman.core.rights import Principal
from pairs.world import Connection, World

NATIVE = "tcp://127.0.0.1:0?lease=600&attempts=3"
MAJORDOMO = "majordomo+tcp://127.0.0.1:0?attempts=3&heartbeat=300"
MEMODB = "memodb+tcp://127.0.0.1:0?attempts=3&detach_timeout=5"
HELLO, WELCOME, ERROR, BYE = b"\x01", b"\x02", b"\x03", b"\x06"
SUBMIT, RESULT, FAILED, JOB = b"\x10", b"\x20", b"\x21", b"\x30"


OwnerOf = Callable[[bytes], str]


def result_for(owner: str, payload: bytes) -> bytes:
    """The result of a job of this principal: equal payloads of two principals have different ones."""
    return b"for %s: %s" % (owner.encode(), payload)


def dealer(world: World, principal: Principal, *, dials: bool = False) -> Zmtp:
    """Return the carrier of a ZeroMQ peer. In a world with CURVE it has the key of its principal."""
    if world.curve is None:
        return Zmtp("DEALER", dials=dials)
    security = CurveClient(key_of(principal.name), SERVER[0], random_of(world))
    return zmtp_carrier("DEALER", dials=dials, security=security)


def random_of(world: World) -> Callable[[int], bytes]:
    """Return the random bytes of keys and nonces in this world, the same in each run."""
    return world.curve.authentication.curve_server.random if world.curve is not None else bytes


@cache
def key_of(name: str) -> tuple[bytes, bytes]:
    return new_key_pair(name.encode().ljust(32, b"."))


SERVER = key_of("broker")


class AccessActor:
    """A connection of a principal."""

    def __init__(self, world: World, principal: Principal, url: str, carrier: Any) -> None:
        self.world = world
        self.principal = principal
        self.connection = Connection(world, world.listener(url, "both"), carrier)

    def __str__(self) -> str:
        return type(self).__name__

    @property
    def is_gone(self) -> bool:
        return self.connection.is_cut

    def cut(self) -> None:
        if not self.connection.is_cut:
            self.connection.cut()

    def say(self, *frames: bytes) -> None:
        if not self.connection.is_cut:
            self.connection.say(*frames)


class AccessWorker(AccessActor):
    """A worker. `held` are its unfinished jobs: their names on the wire, and their results."""

    def __init__(self, world: World, principal: Principal, url: str, carrier: Any) -> None:
        super().__init__(world, principal, url, carrier)
        self.held: list[tuple[bytes, bytes]] = []

    @property
    def is_busy(self) -> bool:
        return bool(self.held)

    def read(self, owner_of: OwnerOf) -> list[str]:
        """Return the services of jobs that have arrived since the last call. `owner_of` finds a job's principal."""
        given = [found for message in self.connection.take() for found in self.parse(message)]
        self.held += [(name, result_for(owner_of(name), payload)) for name, payload in given]
        return [payload.split()[0].decode() for _, payload in given]

    def parse(self, message: list[Any]) -> list[tuple[bytes, bytes]]:
        raise NotImplementedError

    def finish(self) -> None:
        raise NotImplementedError

    def forge(self, world: World, thief: Principal, result: bytes) -> None:
        raise NotImplementedError


class NativeWorker(AccessWorker):
    def __init__(self, world: World, principal: Principal, services: list[str]) -> None:
        super().__init__(world, principal, NATIVE, dealer(world, principal))
        self.say(HELLO + b"\x01\x02", json.dumps({"services": services, "capacity": 2}).encode())

    def parse(self, message: list[Any]) -> list[tuple[bytes, bytes]]:
        head, *frames = message
        if head[:1] != JOB:
            assert head[:1] in (WELCOME, ERROR, BYE, b"\x31"), head
            return []
        records, *payloads = frames
        return [(bytes(records[38 * at : 38 * at + 16]), bytes(each)) for at, each in enumerate(payloads)]

    def finish(self) -> None:
        token, result = self.held.pop(0)
        self.say(RESULT + token, result)

    def forge(self, world: World, thief: Principal, result: bytes) -> None:
        connection = Connection(world, world.listener(NATIVE, "both"), dealer(world, thief))
        connection.say(HELLO + b"\x01\x02", json.dumps({"services": ["crop"]}).encode())
        if not connection.is_cut:
            connection.say(RESULT + self.held[0][0], result)
            connection.cut()


class MajordomoWorker(AccessWorker):
    def __init__(self, world: World, principal: Principal, services: list[str]) -> None:
        super().__init__(world, principal, MAJORDOMO, dealer(world, principal, dials=True))
        self.say(b"", b"MDPW01", b"\x01", services[0].encode())

    def parse(self, message: list[Any]) -> list[tuple[bytes, bytes]]:
        _, _, command, *rest = message
        return [(bytes(rest[0]), bytes(rest[2]))] if command == b"\x02" else []

    def finish(self) -> None:
        client, result = self.held.pop(0)
        self.say(b"", b"MDPW01", b"\x03", client, b"", result)

    def forge(self, world: World, thief: Principal, result: bytes) -> None:
        connection = Connection(world, world.listener(MAJORDOMO, "both"), dealer(world, thief, dials=True))
        connection.say(b"", b"MDPW01", b"\x01", b"crop")
        connection.say(b"", b"MDPW01", b"\x03", self.held[0][0], b"", result)
        connection.cut()


class MemoDbWorker(AccessWorker):
    def __init__(self, world: World, principal: Principal, services: list[str]) -> None:
        super().__init__(world, principal, MEMODB, Sp("REQ"))
        self._numbers = count(0x8000_0001)
        self._ask(1, b"", services)

    def parse(self, message: list[Any]) -> list[tuple[bytes, bytes]]:
        header, payload = _read(message)
        if header[0] == 2:
            return [(header[1], payload)]
        if header[0] == 4:
            self._ask(4, header[1])
        return []

    def finish(self) -> None:
        id, result = self.held.pop(0)
        self._ask(3, id, payload=result)

    def forge(self, world: World, thief: Principal, result: bytes) -> None:
        connection = Connection(world, world.listener(MEMODB, "both"), Sp("REQ"))
        connection.say(b"\x80\x00\x00\x09", _written(3, self.held[0][0]), result)
        if not connection.is_cut:
            connection.cut()

    def _ask(self, *header: Any, payload: bytes = b"") -> None:
        self.say(next(self._numbers).to_bytes(4, "big"), _written(*header), payload)


class AccessCaller(AccessActor):
    """A caller. `expected` are the results of all jobs that it has submitted."""

    def __init__(self, world: World, principal: Principal, url: str, carrier: Any) -> None:
        super().__init__(world, principal, url, carrier)
        self.expected: set[bytes] = set()

    @property
    def can_be_repeated(self) -> bool:
        return False

    def submit(self, service: str, payload: bytes) -> None:
        self.expected.add(result_for(self.principal.name, payload))
        self.send(service, payload)

    def send(self, service: str, payload: bytes) -> None:
        raise NotImplementedError

    def read(self) -> list[bytes]:
        """Return the results that have arrived since the last call."""
        return [found for message in self.connection.take() for found in self.parse(message)]

    def parse(self, message: list[Any]) -> list[bytes]:
        raise NotImplementedError

    def repeated_by(self, world: World, principal: Principal) -> AccessCaller:
        raise NotImplementedError


class NativeCaller(AccessCaller):
    def __init__(self, world: World, principal: Principal) -> None:
        super().__init__(world, principal, NATIVE, dealer(world, principal))
        self._numbers = count(1)
        self.say(HELLO + b"\x01\x01", b"{}")

    def send(self, service: str, payload: bytes) -> None:
        id = len(self.world.connections).to_bytes(8, "big") + next(self._numbers).to_bytes(8, "big")
        self.say(SUBMIT + b"\x01\xff\x00" + bytes(12) + service.encode(), id, payload)

    def parse(self, message: list[Any]) -> list[bytes]:
        head, *frames = message
        return [bytes(each) for each in frames] if head[:1] == RESULT else []


class MajordomoCaller(AccessCaller):
    def __init__(self, world: World, principal: Principal) -> None:
        super().__init__(world, principal, MAJORDOMO, dealer(world, principal, dials=True))

    def send(self, service: str, payload: bytes) -> None:
        self.say(b"", b"MDPC01", service.encode(), payload)

    def parse(self, message: list[Any]) -> list[bytes]:
        return [bytes(message[3])]


class MemoDbCaller(AccessCaller):
    def __init__(self, world: World, principal: Principal) -> None:
        super().__init__(world, principal, MEMODB, Sp("REQ"))
        self._numbers = count(0x8000_0001)
        self.last: tuple[bytes, ...] = ()  # its last request

    @property
    def can_be_repeated(self) -> bool:
        return bool(self.last)

    def send(self, service: str, payload: bytes) -> None:
        self.last = (next(self._numbers).to_bytes(4, "big"), _written(2, b"", service, 60_000), payload)
        self.say(*self.last)

    def parse(self, message: list[Any]) -> list[bytes]:
        return [_read(message)[1]]

    def repeated_by(self, world: World, principal: Principal) -> AccessCaller:
        thief = MemoDbCaller(world, principal)
        thief.expected.add(result_for(principal.name, self.last[2]))  # of a job of its own
        thief.say(*self.last)
        return thief


WORKERS: list[type[Any]] = [NativeWorker, MajordomoWorker, MemoDbWorker]
CALLERS: list[type[Any]] = [NativeCaller, MajordomoCaller, MemoDbCaller]


def _written(*header: Any) -> bytes:
    return cbor2.dumps(["memo01", *header], canonical=True)


def _read(message: list[Any]) -> tuple[list[Any], bytes]:
    stream = BytesIO(bytes(message[1]))
    header = cbor2.CBORDecoder(stream).decode()
    return header[1:], bytes(message[1][stream.tell() :])
