"""Fuzz target: addresses. The first byte selects a listener or a client, and the reader of the options."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import Final

from dragoman.dialects.catalogue import DIALECTS
from dragoman.sdk.address import (
    AddressError,
    TcpAddress,
    UnixAddress,
    is_loopback,
    parse,
    parse_frontend,
    read_options,
)

KINDS: Final = ("ListenerOptions", "WorkerOptions", "ClientOptions")


def test_one_input(data: bytes) -> None:
    choice = data[0] if data else 0
    url = data[1:].decode("utf-8", "surrogateescape")  # the form of an argument of a command
    try:
        check(url, bool(choice & 1), KINDS[(choice >> 1) % len(KINDS)])
    except AddressError as error:
        assert str(error).startswith("bad address "), error
        assert str(error).isprintable(), error


def check(url: str, dials: bool, kind: str) -> None:
    address = parse(url, DIALECTS, dials=dials)
    place = address.place
    is_loopback(place)
    if isinstance(place, TcpAddress):
        assert 0 <= place.port <= 65_535
        written = f"{address.dialect}+tcp://{place}"
        same = written if address.dialect != "http" else f"http://{place}"
        again = parse(same, DIALECTS, dials=dials).place
        assert isinstance(again, TcpAddress)
        assert (again.host, again.port) == (place.host, place.port)
    if "frontend" in address.options:
        frontend = parse_frontend(address.options["frontend"], place, url, dials=dials)
        assert isinstance(frontend, TcpAddress | UnixAddress)
    options = getattr(import_module(DIALECTS[address.dialect].options), kind, None)
    if options is not None and dataclasses.is_dataclass(options):
        assert isinstance(options, type)
        read_options(options, address.options, url, also=("frontend", "auth"))
