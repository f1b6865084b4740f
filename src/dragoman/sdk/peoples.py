"""The dialects that our clients and workers speak: one entry each, and what their URLs may say."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from dragoman.carriers.carrier import Carrier
from dragoman.carriers.sp import Limits as SpLimits
from dragoman.carriers.sp import Sp
from dragoman.carriers.zmtp import Limits as ZmtpLimits
from dragoman.carriers.zmtp import Zmtp
from dragoman.dialects import plain_calls
from dragoman.dialects.controller import options as controller_options
from dragoman.dialects.majordomo import options as majordomo_options
from dragoman.dialects.majordomo import peer as majordomo
from dragoman.dialects.memodb import options as memodb_options
from dragoman.dialects.memodb import peer as memodb
from dragoman.dialects.native import options as native_options
from dragoman.dialects.native import peer as native
from dragoman.dialects.pingpong import options as pingpong_options
from dragoman.dialects.pingpong import peer as pingpong
from dragoman.dialects.powerhose import options as powerhose_options
from dragoman.dialects.powerhose import peer as powerhose
from dragoman.dialects.sides import ClientPort, ClientSide, WorkerPort, WorkerSide
from dragoman.sdk.address import Address, Place, UnixPlace, address_error, parse, parse_frontend, read_options
from dragoman.sdk.ids import new_session

# How much a message may have is the broker's to say (max_payload): what it let in, we take.
HARD_CAP = ZmtpLimits().hard_cap
MOST_FRAMES = 1026


def _nobody(*_: object) -> Any:
    raise AssertionError("this people has nobody who would need it")


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """What it takes to call and to work in one dialect."""

    objection: Callable[[Sequence[str]], str | None] | None  # to names of services; none: the wire has no such names
    shares_connections: bool  # whether several workers may share one
    reports: bool = False  # whether its workers can tell of progress, and of parts of a result
    listener_options: type[Any]  # what concerns only the broker: its URL may be pasted whole
    worker_options: type[Any]
    # Not for workers that are called back (sdk/workers.py:CALLED_BACK): they have no connection of their own.
    worker_carrier: Callable[[Place], Carrier] = _nobody
    worker_side: Callable[[Any, WorkerPort, Sequence[str], int], WorkerSide] = _nobody
    client_options: type[Any] | None = None  # none: it has no clients
    client_carrier: Callable[[Place], Carrier] = _nobody
    client_side: Callable[[Any, ClientPort], ClientSide] = _nobody
    calls_at_once: bool = False  # whether a client may have several calls under way on one connection
    words: frozenset[str] = frozenset()  # of what a caller may ask for, that which the wire can say

    def options(self) -> set[str]:
        """All that a URL of this dialect may say, whoever is meant by it."""
        kinds = (self.listener_options, self.worker_options, self.client_options)
        return {each.name for kind in kinds if kind is not None for each in fields(kind)}


# What every listener's URL may say; none of our business on this side.
COMMON = (
    "frontend",
    "insecure",
    "max_payload",
    "max_send_buffer",
    "handshake_timeout",
    "carrier_ping",
    "carrier_timeout",
)


def _zmtp(socket_type: str) -> Callable[[Place], Carrier]:
    return lambda _: Zmtp(socket_type, dials=True, limits=ZmtpLimits(max_payload=HARD_CAP, max_frames=MOST_FRAMES))


def _sp(place: Place) -> Carrier:
    return Sp(memodb.SOCKET, ipc=isinstance(place, UnixPlace), limits=SpLimits(max_payload=HARD_CAP))


def _anything() -> int:
    """Where request ids begin: two programs should not begin with the same."""
    return random.getrandbits(31)


def _native_client(options: Any, port: ClientPort) -> native.ClientSide:
    return native.ClientSide(options, port, new_session())


PEOPLES: Mapping[str, People] = {
    "native": People(
        objection=native.objection,
        shares_connections=True,
        reports=True,
        listener_options=native_options.ListenerOptions,
        worker_options=native_options.WorkerOptions,
        worker_carrier=_zmtp(native.SOCKET),
        worker_side=native.WorkerSide,
        client_options=native_options.ClientOptions,
        client_carrier=_zmtp(native.SOCKET),
        client_side=_native_client,
        calls_at_once=True,
        words=frozenset(
            {
                "timeout",
                "priority",
                "attempts",
                "job_timeout",
                "queue_timeout",
                "wait",
                "id",
                "progress",
                "parts",
                "cancel",
                "background jobs",
            }
        ),
    ),
    "pingpong": People(
        objection=None,
        shares_connections=False,
        listener_options=pingpong_options.ListenerOptions,
        worker_options=pingpong_options.WorkerOptions,
        worker_carrier=_zmtp(pingpong.WORKER_SOCKET),
        worker_side=lambda options, port, _, __: pingpong.WorkerSide(options, port),
        client_options=pingpong_options.ClientOptions,
        client_carrier=_zmtp(plain_calls.CLIENT_SOCKET),
        client_side=pingpong.ClientSide,
    ),
    "powerhose": People(
        objection=None,
        shares_connections=False,
        listener_options=powerhose_options.ListenerOptions,
        worker_options=powerhose_options.WorkerOptions,
        client_options=powerhose_options.ClientOptions,
        client_carrier=_zmtp(plain_calls.CLIENT_SOCKET),
        client_side=powerhose.ClientSide,
    ),
    "memodb": People(
        objection=memodb.objection,
        shares_connections=True,
        listener_options=memodb_options.ListenerOptions,
        worker_options=memodb_options.WorkerOptions,
        worker_carrier=_sp,
        worker_side=lambda options, port, services, concurrency: memodb.WorkerSide(
            options, port, services, concurrency, _anything()
        ),
        client_options=memodb_options.ClientOptions,
        client_carrier=_sp,
        client_side=lambda options, port: memodb.ClientSide(options, port, _anything()),
        calls_at_once=True,
        words=frozenset({"job_timeout"}),
    ),
    "controller": People(
        objection=None,
        shares_connections=False,
        listener_options=controller_options.ListenerOptions,
        worker_options=controller_options.WorkerOptions,
    ),
    "majordomo": People(
        objection=majordomo.objection,
        shares_connections=False,
        listener_options=majordomo_options.ListenerOptions,
        worker_options=majordomo_options.WorkerOptions,
        worker_carrier=_zmtp(majordomo.SOCKET),
        worker_side=lambda options, port, services, _: majordomo.WorkerSide(options, port, services[0]),
        client_options=majordomo_options.ClientOptions,
        client_carrier=_zmtp(majordomo.SOCKET),
        client_side=majordomo.ClientSide,
        words=frozenset({"parts"}),  # none ever come in edition 0.1
    ),
}


@dataclass(frozen=True, slots=True)
class Target:
    """Who is there, where to connect, and what the URL says."""

    dialect: str
    people: People
    place: Place
    options: Any
    services: tuple[str, ...] = ()


def worker_target(url: str, services: Sequence[str] = ()) -> Target:
    """Where to work, and for what. Raises AddressError."""
    address = parse(url, PEOPLES)
    people = PEOPLES[address.dialect]
    options = _options(people.worker_options, people, address)
    _check_services(people, address, options.service, services)
    return Target(address.dialect, people, address.place, options, tuple(services) or (options.service,))


def caller_target(url: str, service: str | None) -> Target:
    """Where to call: the frontend if the URL names one, else the place itself."""
    address = parse(url, PEOPLES)
    people = PEOPLES[address.dialect]
    if people.client_options is None:
        raise address_error(
            url,
            f"{address.dialect} has workers but no callers: call through another dialect that the broker listens for, "
            "such as memodb+tcp://127.0.0.1:7405",
        )
    options = _options(people.client_options, people, address)
    _check_services(people, address, options.service, [service] if service is not None else [])
    frontend = address.options.get("frontend")
    place = address.place if frontend is None else parse_frontend(frontend, address.place, url)
    return Target(address.dialect, people, place, options)


def _options(kind: type[Any], people: People, address: Address) -> Any:
    return read_options(kind, address.options, address.url, also={*COMMON, *people.options()})


def _check_services(people: People, address: Address, known: str, asked: Sequence[str]) -> None:
    if people.objection is not None:
        problem = people.objection(asked or (known,))
        if problem is not None:
            raise address_error(address.url, problem)
        return
    for service in asked:
        if service not in ("default", known):
            raise address_error(
                address.url,
                f"{address.dialect} has no service names on the wire: this address serves {known!r}, "
                f"not {service!r}; add service={service} to the URL if that is its name there",
            )
