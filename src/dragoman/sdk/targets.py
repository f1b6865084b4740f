"""The target of a client or a worker, parsed from its URL: dialect, socket address and options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from pkgutil import resolve_name
from typing import Any

from dragoman.dialects.catalogue import DIALECTS, Dialect
from dragoman.sdk.address import Address, SocketAddress, TlsAddress, address_error, parse, parse_frontend, read_options
from dragoman.sdk.dialect_sides import Sides
from dragoman.streams.tls_context import TlsFileError, client_role

# Dialects of the SDK's clients and workers.
SPOKEN = {name: dialect for name, dialect in DIALECTS.items() if dialect.sides is not None}

# Options of every listener's URL that clients and workers ignore.
COMMON = (
    "frontend",
    "insecure",
    "loopback",
    "mode",
    "group",
    "max_payload",
    "max_send_buffer",
    "handshake_timeout",
    "carrier_ping",
    "carrier_timeout",
)


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL of a client or a worker."""

    dialect: Dialect
    sides: Sides
    place: SocketAddress
    options: Any
    services: tuple[str, ...] = ()


def worker_target(url: str, services: Sequence[str] = ()) -> Target:
    """Return the target of a worker with these services. Raises AddressError."""
    address = parse(url, SPOKEN, dials=True)
    dialect = SPOKEN[address.dialect]
    options = _options("WorkerOptions", dialect, address)
    _check_services(dialect, address, options.service, services)
    return Target(dialect, sides_of(dialect), address.place, options, tuple(services) or (options.service,))


def caller_target(url: str, service: str | None) -> Target:
    """Return the target of a client: the frontend if the URL names one, else its host and port. Raises AddressError."""
    address = parse(url, SPOKEN, dials=True)
    dialect = SPOKEN[address.dialect]
    if not dialect.has_callers:
        raise address_error(
            url,
            f"{address.dialect} has workers but no callers; call through another listener of the broker, such as "
            "memodb+tcp://127.0.0.1:7405",
        )
    options = _options("ClientOptions", dialect, address)
    _check_services(dialect, address, options.service, [service] if service is not None else [])
    frontend = address.options.get("frontend")
    place = address.place if frontend is None else parse_frontend(frontend, address.place, url, dials=True)
    return Target(dialect, sides_of(dialect), place, options)


@cache
def sides_of(dialect: Dialect) -> Sides:
    assert dialect.sides is not None
    sides: Sides = resolve_name(dialect.sides)()
    return sides


def _options(kind: str, dialect: Dialect, address: Address) -> Any:
    """Return the options of one side. Options of other sides are ignored, so that a listener's URL can be reused.
    Files of TLS are read, so that an error in them is found before the first dial."""
    if isinstance(address.place, TlsAddress):
        try:
            client_role(address.place.tls, address.place.host)
        except TlsFileError as error:
            raise address_error(address.url, str(error)) from None
    module = import_module(dialect.options)
    kinds = [getattr(module, each, None) for each in ("ListenerOptions", "WorkerOptions", "ClientOptions")]
    known = {each.name for kind in kinds if kind is not None for each in fields(kind)}
    known |= {*getattr(module, "IGNORED", COMMON)}
    return read_options(getattr(module, kind), address.options, address.url, also=known)


def _check_services(dialect: Dialect, address: Address, known: str, asked: Sequence[str]) -> None:
    if dialect.has_service_names:
        problem = sides_of(dialect).check_services(asked or (known,))
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
