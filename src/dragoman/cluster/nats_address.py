"""Addresses of NATS servers: `nats://a:4222,b,c`, or `tls://a,b,c?ca=ca.pem` with TLS.

Several servers of one cluster are one address. Without a port, 4222 is meant. The options of `tls://` name files, as in
other addresses, and `tls_first=true` for servers that expect TLS before INFO (`handshake_first`). Credentials are never
in an address: other users see it in the list of processes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Final
from urllib.parse import unquote

from dragoman.carriers.nats import Encryption
from dragoman.sdk.address import MAX_PORT, AddressError, TcpAddress, TlsAddress, address_error
from dragoman.streams.tls_context import TlsFiles

DEFAULT_PORT: Final = 4222
MAX_SERVERS: Final = 64
OPTIONS: Final = ("ca", "cert", "key", "server_name", "tls_first")
NAME: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252})")

NatsPlace = TcpAddress  # or the TlsAddress that is one


@dataclass(frozen=True, slots=True)
class NatsAddress:
    """The servers to connect to, and the place of TLS."""

    url: str
    places: tuple[NatsPlace, ...]
    encryption: Encryption

    def other(self, text: str, known: NatsPlace) -> NatsPlace | None:
        """Return the place of a server that another one has named (`connect_urls`); None if it cannot be read.

        With TLS, a server that is named by its IP address may show a certificate for the name of the known one.
        """
        try:
            host, port = _split(text, self.url)
        except AddressError:
            return None
        if not isinstance(known, TlsAddress):
            return TcpAddress(host, port)
        files = known.tls
        if not files.server_name and _is_ip(host) and not _is_ip(known.host):
            files = replace(files, server_name=known.host)
        return TlsAddress(host, port, files)


def parse_nats(url: str) -> NatsAddress:
    """Parse an address. Raises AddressError."""
    if " " in url or not url.isprintable():
        raise address_error(url, "spaces and control characters are not allowed in an address")
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("nats", "tls"):
        raise address_error(url, "an address of NATS servers looks like nats://a:4222,b:4222, or tls://a,b with TLS")
    text, _, query = rest.partition("?")
    if "@" in text:
        raise address_error(url, "an address has no user or password, because others can read it; write them to a file")
    pairs = [_split(each, url) for each in text.rstrip("/").split(",")]
    if len(pairs) > MAX_SERVERS:
        raise address_error(url, f"{len(pairs)} servers; {MAX_SERVERS} are allowed, and the others are found by these")
    options = _options(query, url)
    if scheme == "nats":
        if options:
            raise address_error(url, f"the option {next(iter(options))!r} needs TLS; write tls:// instead of nats://")
        return NatsAddress(url, tuple([TcpAddress(host, port) for host, port in pairs]), Encryption.NONE)
    first = options.pop("tls_first", "false")
    if first not in ("true", "false"):
        raise address_error(url, f"tls_first={first}: write true or false")
    files = TlsFiles(**options)
    places = tuple([TlsAddress(host, port, files) for host, port in pairs])
    return NatsAddress(url, places, Encryption.BEFORE_INFO if first == "true" else Encryption.AFTER_INFO)


def is_loopback(place: NatsPlace) -> bool:
    """True if a server is on this machine, so that nobody else reads what is sent to it."""
    if place.host == "localhost":
        return True
    return _is_ip(place.host) and ip_address(place.host).is_loopback


def _split(text: str, url: str) -> tuple[str, int]:
    """Split host and port. Raises AddressError."""
    bracket = text.rfind("]")
    host, colon, port = text[bracket + 1 :].partition(":")
    host = text[: bracket + 1] + host
    if colon and (not port.isascii() or not port.isdigit() or len(port) > 5 or not 0 < int(port) <= MAX_PORT):
        raise address_error(url, f"the port {port!r} is not a number from 1 to {MAX_PORT}; write IPv6 as [::1]:4222")
    number = int(port) if colon else DEFAULT_PORT
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not _is_ip(host) or ":" not in host:
            raise address_error(url, f"{host!r} is not an IPv6 address; write it as [::1]:4222")
        return host, number
    if NAME.fullmatch(host) is None:
        raise address_error(url, f"{host!r} is not a host; write a name, an IPv4 address or [an IPv6 address]")
    return host, number


def _options(query: str, url: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for piece in query.split("&") if query else ():
        name, equals, value = piece.partition("=")
        if name not in OPTIONS or not equals or name in options:
            raise address_error(url, f"the option {name!r} is unknown or occurs twice; known are {', '.join(OPTIONS)}")
        options[name] = unquote(value)
    return options


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
