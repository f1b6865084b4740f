"""The dialects that our clients and workers speak: one entry each, and what their URLs may say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.dialects.pingpong import peer as pingpong
from dragoman.dialects.pingpong.options import ClientOptions, ListenerOptions, WorkerOptions
from dragoman.sdk.address import Address, Place, address_error, parse, parse_frontend, read_options


class WorkerSide(Protocol):
    """One worker's side of a conversation; pingpong/peer.py shows what each does."""

    @property
    def is_busy(self) -> bool: ...

    def opened(self, now: float) -> None: ...

    def lost(self) -> None: ...

    def hear(self, message: Message | TooLarge, now: float) -> None: ...

    def finished(self, result: Frame, now: float) -> None: ...

    def failed(self, reason: str) -> None: ...

    def stop(self) -> None: ...

    def tick(self, now: float) -> float: ...


@dataclass(frozen=True, slots=True)
class People:
    """What it takes to call and to work in one dialect."""

    worker_socket: str
    worker_options: type[Any]
    worker_side: Callable[[Any, Any], WorkerSide]
    client_socket: str
    client_options: type[Any]
    request: Callable[[Frame], list[Frame]]
    answer: Callable[[Message | TooLarge], tuple[Frame, str | None]]
    broker_options: Collection[str]  # names that concern only the broker: its URL may be pasted whole


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

PEOPLES: Mapping[str, People] = {
    "pingpong": People(
        worker_socket=pingpong.WORKER_SOCKET,
        worker_options=WorkerOptions,
        worker_side=pingpong.WorkerSide,
        client_socket=pingpong.CLIENT_SOCKET,
        client_options=ClientOptions,
        request=pingpong.request,
        answer=pingpong.answer,
        broker_options=[each.name for each in (*fields(ListenerOptions), *fields(WorkerOptions))],
    ),
}


def worker_target(url: str, service: str | None) -> tuple[People, Place, Any]:
    """Who works there, where to connect, and what the URL says. Raises AddressError."""
    address = parse(url, PEOPLES)
    people = PEOPLES[address.dialect]
    return people, address.place, _options(people.worker_options, people, address, service)


def caller_target(url: str, service: str | None) -> tuple[People, Place]:
    """Who answers there, and where to connect: the frontend if the URL names one, else the place itself."""
    address = parse(url, PEOPLES)
    people = PEOPLES[address.dialect]
    _options(people.client_options, people, address, service)
    frontend = address.options.get("frontend")
    return people, (address.place if frontend is None else parse_frontend(frontend, address.place, url))


def _options(kind: type[Any], people: People, address: Address, service: str | None) -> Any:
    options = read_options(kind, address.options, address.url, also={*COMMON, *people.broker_options})
    if service not in (None, "default", options.service):
        raise address_error(
            address.url,
            f"{address.dialect} has no service names on the wire: this address serves {options.service!r}, "
            f"not {service!r}; add service={service} to the URL if that is its name there",
        )
    return options
