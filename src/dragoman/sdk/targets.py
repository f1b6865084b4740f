"""The target of a client or a worker, parsed from its URLs: dialect, socket addresses and options."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib import import_module
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from dragoman.carriers.carrier import Carrier
from dragoman.dialects.catalogue import DIALECTS, Dialect
from dragoman.sdk.address import (
    Address,
    SocketAddress,
    TlsAddress,
    UnixAddress,
    address_error,
    parse_frontend,
    read_options,
)
from dragoman.sdk.address_list import Urls, first_url, parse_all
from dragoman.sdk.credentials import NO_CREDENTIALS, CredentialError, Credentials, Tls
from dragoman.sdk.dialect_sides import Sides
from dragoman.sdk.proof import URL_OPTIONS, Proof, proof_of
from dragoman.streams.sockets import AF_UNIX
from dragoman.streams.tls_context import TlsFileError, client_role

if TYPE_CHECKING:
    from dragoman.core.limit_values import LimitValues

# Dialects of the SDK's clients and workers.
SPOKEN = {name: dialect for name, dialect in DIALECTS.items() if dialect.sides is not None}

# Options of every listener's URL that clients and workers ignore.
COMMON = (
    "frontend",
    "insecure",
    "loopback",
    "mode",
    "group",
    "auth",
    "max_payload",
    "max_send_buffer",
    "handshake_timeout",
    "carrier_ping",
    "carrier_timeout",
)


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL of a client or a worker. With several addresses, `others` has one target for each further one."""

    dialect: Dialect
    sides: Sides
    place: SocketAddress
    options: Any
    proof: Proof
    services: tuple[str, ...] = ()
    requires_parts: tuple[str, ...] = ()  # those of a worker's services whose callers must take parts
    limits: Mapping[str, LimitValues] = field(default_factory=dict)  # that a worker declares, by service
    parameters: Mapping[str, dict[str, Any]] = field(default_factory=dict)  # of its services, as JSON Schema objects
    others: tuple[Target, ...] = ()

    @property
    def each(self) -> tuple[Target, ...]:
        """One target for each address."""
        return (self, *self.others)

    @property
    def places(self) -> str:
        """All addresses, for messages."""
        return ", ".join(str(each.place) for each in self.each)

    def client_carrier(self) -> Carrier:
        """Return the carrier of a new connection of a client, or of an HTTP worker."""
        return self.sides.client_carrier(self.place, self.proof)

    def worker_carrier(self) -> Carrier:
        """Return the carrier of a new connection of a worker."""
        return self.sides.worker_carrier(self.place, self.proof)


def worker_target(url: Urls, services: Sequence[str] = (), credentials: Credentials = NO_CREDENTIALS) -> Target:
    """Return the target of a worker with these services. Raises AddressError and CredentialError."""
    target = _together(url, [_worker_target(each, services, credentials) for each in _parse_all(url, credentials)])
    if target.others and not target.dialect.workers_move:
        able = ", ".join(sorted(name for name, each in SPOKEN.items() if each.workers_move))
        raise address_error(
            first_url(url), f"a worker in {target.dialect.name} takes one address; several are possible in {able}"
        )
    return target


def _worker_target(address: Address, services: Sequence[str], credentials: Credentials) -> Target:
    dialect = SPOKEN[address.dialect]
    options = _options("WorkerOptions", dialect, address)
    check_services(dialect, address.url, options.service, services)
    sides = sides_of(dialect)
    proof = proof_of(address, address.place, sides, credentials)
    return Target(dialect, sides, address.place, options, proof, tuple(services) or (options.service,))


def caller_target(url: Urls, service: str | None = None, credentials: Credentials = NO_CREDENTIALS) -> Target:
    """Return the target of a client: the frontend if the URL names one, else its host and port. Raises AddressError and
    CredentialError."""
    return _together(url, [_caller_target(each, service, credentials) for each in _parse_all(url, credentials)])


def _caller_target(address: Address, service: str | None, credentials: Credentials) -> Target:
    dialect, url = SPOKEN[address.dialect], address.url
    if not dialect.has_callers:
        raise address_error(
            url,
            f"{address.dialect} has workers but no callers; call through another listener of the broker, such as "
            "memodb+tcp://127.0.0.1:7405",
        )
    options = _options("ClientOptions", dialect, address)
    check_services(dialect, url, options.service, [service] if service is not None else [])
    frontend = address.options.get("frontend")
    place = address.place if frontend is None else parse_frontend(frontend, address.place, url, dials=True)
    sides = sides_of(dialect)
    return Target(dialect, sides, place, options, proof_of(address, place, sides, credentials))


def _together(url: Urls, targets: Sequence[Target]) -> Target:
    """Return the first target, with the others in it. Raises AddressError."""
    first, *others = targets
    if AF_UNIX is None and any(isinstance(each.place, UnixAddress) for each in targets):
        raise address_error(
            first_url(url),
            "this system has no Unix sockets; use TCP, such as tcp://127.0.0.1:7400 or http://127.0.0.1:7480",
        )
    if not others:
        return first
    known: set[str] = set()
    for each in targets:
        if str(each.place) in known:
            raise address_error(first_url(url), f"{each.place} occurs twice; name each broker once")
        known.add(str(each.place))
        if each.options != first.options:
            name = next(
                name
                for name in (option.name for option in fields(first.options))
                if getattr(each.options, name) != getattr(first.options, name)
            )
            raise address_error(
                first_url(url),
                f"the option {name}= of {each.place} differs from that of {first.place}; write the same for all "
                "addresses (only keys, tokens and certificates may differ)",
            )
    return replace(first, others=tuple(others))


@cache
def sides_of(dialect: Dialect) -> Sides:
    assert dialect.sides is not None
    sides: Sides = resolve_name(dialect.sides)()
    return sides


def _parse_all(url: Urls, credentials: Credentials) -> list[Address]:
    """Parse addresses and add the argument `tls`."""
    if credentials.tls:
        given = [url] if isinstance(url, str) else url
        url = [_TRANSPORT.sub(_with_tls, each, count=1) for each in given]
    return [_with_tls_files(each, credentials.tls) for each in parse_all(url, SPOKEN)]


def _with_tls_files(address: Address, tls: Tls | bool | None) -> Address:
    """Add the argument `tls`. Files of TLS are read, so that an error in them is found before the first dial."""
    place = address.place
    if not isinstance(place, TlsAddress):
        if tls:
            raise CredentialError(f"the argument tls: {place} is a Unix socket, which has no TLS; leave tls out")
        return address
    if isinstance(tls, Tls):
        given = {each.name: str(getattr(tls, each.name)) for each in fields(tls)}
        files = replace(place.tls, **{name: value for name, value in given.items() if value})
        address = replace(address, place=replace(place, tls=files))
    else:
        files = place.tls
    try:
        client_role(files, place.host)
    except TlsFileError as error:
        if isinstance(tls, Tls):
            raise CredentialError(f"the argument tls: {error}") from None
        raise address_error(address.url, str(error)) from None
    return address


_TRANSPORT = re.compile(r"^([a-z]+\+)?(tcp|http)(?=://)", re.IGNORECASE)


def _with_tls(scheme: re.Match[str]) -> str:
    return f"{scheme[1] or ''}{'tls' if scheme[2].lower() == 'tcp' else 'https'}"


def _options(kind: str, dialect: Dialect, address: Address) -> Any:
    """Return the options of one side. Options of other sides are ignored, so that a listener's URL can be reused."""
    module = import_module(dialect.options)
    kinds = [getattr(module, each, None) for each in ("ListenerOptions", "WorkerOptions", "ClientOptions")]
    known = {each.name for kind in kinds if kind is not None for each in fields(kind)}
    known |= {*getattr(module, "IGNORED", COMMON), *URL_OPTIONS}
    return read_options(getattr(module, kind), address.options, address.url, also=known)


def check_services(dialect: Dialect, url: str, known: str, asked: Sequence[str]) -> None:
    """Raise AddressError if services with these names cannot be used at the address. `known`: that of the URL."""
    if dialect.has_service_names:
        problem = sides_of(dialect).check_services(asked or (known,))
        if problem is not None:
            raise address_error(url, problem)
        return
    for service in asked:
        if service not in ("default", known):
            raise address_error(
                url,
                f"{dialect.name} has no service names on the wire: this address serves {known!r}, "
                f"not {service!r}; add service={service} to the URL if that is its name there",
            )
