"""The target of a client or a worker, parsed from its URL: dialect, socket address and options."""

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
from dragoman.sdk.address import Address, SocketAddress, TlsAddress, address_error, parse, parse_frontend, read_options
from dragoman.sdk.credentials import NO_CREDENTIALS, CredentialError, Credentials, Tls
from dragoman.sdk.dialect_sides import Sides
from dragoman.sdk.proof import URL_OPTIONS, Proof, proof_of
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
    """A parsed URL of a client or a worker."""

    dialect: Dialect
    sides: Sides
    place: SocketAddress
    options: Any
    proof: Proof
    services: tuple[str, ...] = ()
    requires_parts: tuple[str, ...] = ()  # those of a worker's services whose callers must take parts
    limits: Mapping[str, LimitValues] = field(default_factory=dict)  # that a worker declares, by service

    def client_carrier(self) -> Carrier:
        """Return the carrier of a new connection of a client, or of an HTTP worker."""
        return self.sides.client_carrier(self.place, self.proof)

    def worker_carrier(self) -> Carrier:
        """Return the carrier of a new connection of a worker."""
        return self.sides.worker_carrier(self.place, self.proof)


def worker_target(url: str, services: Sequence[str] = (), credentials: Credentials = NO_CREDENTIALS) -> Target:
    """Return the target of a worker with these services. Raises AddressError and CredentialError."""
    address = _parse(url, credentials)
    dialect = SPOKEN[address.dialect]
    options = _options("WorkerOptions", dialect, address)
    check_services(dialect, url, options.service, services)
    sides = sides_of(dialect)
    proof = proof_of(address, address.place, sides, credentials)
    return Target(dialect, sides, address.place, options, proof, tuple(services) or (options.service,))


def caller_target(url: str, service: str | None = None, credentials: Credentials = NO_CREDENTIALS) -> Target:
    """Return the target of a client: the frontend if the URL names one, else its host and port. Raises AddressError and
    CredentialError."""
    address = _parse(url, credentials)
    dialect = SPOKEN[address.dialect]
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


@cache
def sides_of(dialect: Dialect) -> Sides:
    assert dialect.sides is not None
    sides: Sides = resolve_name(dialect.sides)()
    return sides


def _parse(url: str, credentials: Credentials) -> Address:
    """Parse an address and add the argument `tls`. Files of TLS are read, so that an error in them is found before the
    first dial."""
    tls = credentials.tls
    address = parse(_TRANSPORT.sub(_with_tls, url, count=1) if tls else url, SPOKEN, dials=True)
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
