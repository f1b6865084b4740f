"""The dialects that our clients and workers speak, and what their URLs may say."""

from __future__ import annotations

from dataclasses import fields
from typing import TypeVar

from dragoman.dialects.pingpong.options import ClientOptions, ListenerOptions, WorkerOptions
from dragoman.sdk.address import Address, Place, address_error, parse, parse_frontend, read_options

DIALECTS = ("pingpong",)

# A listener's URL may be pasted whole: what concerns only the broker is passed over.
BROKER_OPTIONS = {"frontend", "insecure", "max_payload", "max_send_buffer", "handshake_timeout"} | {
    each.name for each in (*fields(ListenerOptions), *fields(WorkerOptions))
}

Options = TypeVar("Options", WorkerOptions, ClientOptions)


def worker_target(url: str, service: str | None) -> tuple[Place, WorkerOptions]:
    """Where a worker connects, and what its URL says. Raises AddressError."""
    address = parse(url, DIALECTS)
    return address.place, _options(WorkerOptions, address, service)


def caller_target(url: str, service: str | None) -> tuple[Place, ClientOptions]:
    """Where a caller connects: the frontend if the URL names one, else the place itself."""
    address = parse(url, DIALECTS)
    options = _options(ClientOptions, address, service)
    frontend = address.options.get("frontend")
    return (address.place if frontend is None else parse_frontend(frontend, address.place, url)), options


def _options(kind: type[Options], address: Address, service: str | None) -> Options:
    options = read_options(kind, address.options, address.url, also=BROKER_OPTIONS)
    if service is not None and service != options.service:
        raise address_error(
            address.url,
            f"{address.dialect} has no service names on the wire: this address serves {options.service!r}, "
            f"not {service!r}; add service={service} to the URL if that is its name there",
        )
    return options
