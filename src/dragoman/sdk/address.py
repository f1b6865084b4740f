"""Addresses of listeners, clients and workers: `dialect+transport://place?options`.

An address is parsed in two steps. `parse` checks the general form and leaves the options as text; `read_options`
converts them to the options dataclass of the listener, client or worker. An invalid address raises `AddressError`,
whose message shows the URL, the error and a correct form.
"""

from __future__ import annotations

import dataclasses
import difflib
import ipaddress
import math
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType, NoneType
from typing import Any, TypeVar, get_args, get_type_hints
from urllib.parse import unquote

from dragoman.dialects.catalogue import DIALECTS
from dragoman.streams.tls_context import HTTP_PROTOCOL, NATIVE_PROTOCOL, TlsFiles

URL_VARIABLE = "DRAGOMAN_URL"  # has the default address of clients, workers and commands
T = TypeVar("T")

TRANSPORTS = ("tcp", "ipc", "unix", "http", "tls", "https")

# sun_path has 108 bytes on Linux, and the last is the terminator.
MAX_UNIX_PATH_BYTES = 107
MAX_PORT = 65_535

# Dialects of schemes that name none.
_DIALECT_OF_PLAIN_TRANSPORT = {scheme: row.name for row in DIALECTS.values() for scheme in row.schemes}
_UNIX_TRANSPORTS = ("ipc", "unix")
_TLS_TRANSPORTS = {"tls": "tcp", "https": "http"}  # the same without TLS
_DIALECT_OF_PLAIN_TRANSPORT |= {tls: _DIALECT_OF_PLAIN_TRANSPORT[plain] for tls, plain in _TLS_TRANSPORTS.items()}
_SECRET_OPTION = re.compile(r"(?:^|&)(?:access_)?token=|dgm_", re.IGNORECASE)
TLS_OPTIONS = ("cert", "key", "ca", "client_ca", "server_name")
_TLS_PROTOCOLS = {"native": NATIVE_PROTOCOL, "http": HTTP_PROTOCOL}  # application protocols (ALPN), by dialect


class AddressError(ValueError):
    """An invalid address. The message shows the URL, the error and a correct form."""


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A host and a port; port 0 means any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class TlsAddress(TcpAddress):
    """A host and a port where TLS is spoken, with the files that the address names."""

    tls: TlsFiles

    __str__ = TcpAddress.__str__


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """The path of a Unix socket or, for dialects with several sockets, of their folder."""

    path: str

    def __str__(self) -> str:
        return self.path


SocketAddress = TcpAddress | UnixAddress


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address. `options` is immutable, percent-decoded and otherwise unchanged; `place` has those of TLS."""

    url: str
    dialect: str
    transport: str
    place: SocketAddress
    options: Mapping[str, str] = field(hash=False)


def parse(url: str, dialects: Collection[str], *, dials: bool = False) -> Address:
    """Parse `url`; `dialects` are the names allowed in front of the `+`. `dials`: the address of a client or a worker,
    for which an error does not suggest port 0."""
    first, *others = parse_each(url, dialects, dials=dials)
    if others:
        raise address_error(url, "one host is allowed here; only clients and workers take several")
    return first


def parse_each(url: str, dialects: Collection[str], *, dials: bool = False) -> list[Address]:
    """Parse a URL that may name several hosts, `tcp://a:7400,b:7400?options`. The options apply to each."""
    _refuse_strange_characters(url)
    _refuse_secrets(url, dials)
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise address_error(
            url,
            "'://' is missing; an address looks like tcp://127.0.0.1:7400, http://127.0.0.1:7480 or "
            "ipc:///tmp/broker.sock",
        )
    if "#" in rest:
        raise address_error(url, "an address has no fragment; remove the '#' or write it as %23")
    dialect, transport = _read_scheme(scheme.lower(), dialects, url)
    text, _, query = rest.partition("?")
    places = [_read_place(transport, _decode(each, url), url, dials) for each in _hosts(transport, text, url)]
    options = _split_options(query, url)
    if transport in _TLS_TRANSPORTS:
        named = {name: options.pop(name) for name in TLS_OPTIONS if name in options}
        files = TlsFiles(**named, protocol=_TLS_PROTOCOLS.get(dialect, ""))
        places = [TlsAddress(each.host, each.port, files) for each in places if isinstance(each, TcpAddress)]
    return [Address(url, dialect, transport, each, MappingProxyType(options)) for each in places]


def _hosts(transport: str, text: str, url: str) -> list[str]:
    """Split `a:1,b:2`. The path of a Unix socket may have commas."""
    if re.search(r",[A-Za-z+]*://", text):
        raise address_error(url, "write the scheme and the options once: tcp://a:7400,b:7400?options")
    pieces = [text] if transport in _UNIX_TRANSPORTS else text.split(",")
    if len(pieces) > 1 and not all(each.strip("/") for each in pieces):
        raise address_error(url, "a host is missing beside a comma; remove the comma, or write host:port")
    return pieces


def _refuse_strange_characters(url: str) -> None:
    if " " in url or not url.isprintable():
        raise address_error(url, "spaces and control characters are not allowed in an address; write a space as %20")


def _refuse_secrets(url: str, dials: bool) -> None:
    """Refuse a token in the options. Other users see addresses in the list of processes, and logs keep them."""
    query = url.partition("?")[2]
    if _SECRET_OPTION.search(query) or _SECRET_OPTION.search(unquote(query)):
        instead = "name a file that has it with token_file=, or set DRAGOMAN_TOKEN" if dials else "a listener has none"
        raise address_error(url, f"an address must not have a token, because others can read it; {instead}")


def _read_scheme(scheme: str, dialects: Collection[str], url: str) -> tuple[str, str]:
    dialect, plus, transport = scheme.partition("+")
    if not plus:
        dialect, transport = _read_plain_scheme(scheme, dialects, url)
    elif transport in ("http", "https"):
        raise address_error(url, f"{transport}:// has no dialect in front of it; write {transport}://127.0.0.1:7480")
    if dialect not in dialects:
        raise _unknown_dialect(dialect, dialects, url)
    if transport not in TRANSPORTS:
        hint = f"transports are {', '.join(TRANSPORTS)}{nearest(transport, TRANSPORTS)}"
        raise address_error(url, f"unknown transport {transport!r}; {hint}")
    return dialect, transport


def _read_plain_scheme(scheme: str, dialects: Collection[str], url: str) -> tuple[str, str]:
    if scheme in _DIALECT_OF_PLAIN_TRANSPORT:
        return _DIALECT_OF_PLAIN_TRANSPORT[scheme], scheme
    if scheme in dialects:
        raise address_error(url, f"the transport is missing; write {scheme}+tcp:// or {scheme}+ipc://")
    if scheme in TRANSPORTS:
        raise address_error(url, f"{scheme}:// needs a dialect in front of it; for the native dialect write ipc://")
    raise _unknown_scheme(scheme, dialects, url)


def _unknown_scheme(scheme: str, dialects: Collection[str], url: str) -> AddressError:
    plain = [each for each, dialect in _DIALECT_OF_PLAIN_TRANSPORT.items() if dialect in dialects]
    forms = ", ".join([*(f"{each}://" for each in plain), "DIALECT+tcp://", "DIALECT+ipc://"])
    hint = nearest(scheme, [*plain, *dialects])
    return address_error(
        url, f"unknown scheme {scheme!r}{hint}; allowed are {forms}, where DIALECT is one of {_listed(dialects)}"
    )


def _unknown_dialect(dialect: str, dialects: Collection[str], url: str) -> AddressError:
    hint = nearest(dialect, dialects)
    return address_error(url, f"unknown dialect {dialect!r}{hint}; known dialects: {_listed(dialects)}")


def _listed(dialects: Collection[str]) -> str:
    return ", ".join(sorted(dialects)) or "none"


def _read_place(transport: str, text: str, url: str, dials: bool) -> SocketAddress:
    """Parse a socket address that is already percent-decoded."""
    return _read_unix_place(text, url) if transport in _UNIX_TRANSPORTS else _read_tcp_place(text, url, dials)


def _read_unix_place(path: str, url: str) -> UnixAddress:
    if not path.strip("/"):
        raise address_error(url, "the path is missing; write it after three slashes, such as ipc:///tmp/broker.sock")
    if path.startswith("@"):
        raise address_error(url, "abstract sockets are not supported; write a path such as ipc:///tmp/broker.sock")
    if not path.startswith("/"):
        name = path.rsplit("@", 1)[-1].rsplit("/", 1)[-1] or "broker.sock"
        raise address_error(
            url, f"the path is relative; write three slashes and the whole path, such as ipc:///tmp/{name}"
        )
    size = len(path.encode())
    if size > MAX_UNIX_PATH_BYTES:
        raise address_error(url, f"the path has {size} bytes; a Unix socket allows {MAX_UNIX_PATH_BYTES}")
    return UnixAddress(path)


def _read_tcp_place(text: str, url: str, dials: bool) -> TcpAddress:
    authority, _, path = text.partition("/")
    if "@" in authority:
        instead = "; a token belongs into a file (token_file=) or into DRAGOMAN_TOKEN" if dials else ""
        raise address_error(url, f"an address has no user or password; remove everything before the '@'{instead}")
    if path:
        raise address_error(url, f"only ?options may follow host:port; remove {'/' + path!r}")
    if not authority:
        raise address_error(url, "host and port are missing; write host:port, such as 127.0.0.1:7400")
    host, port = _split_authority(authority, url, dials)
    return TcpAddress(_read_host(host, url), _read_port(port, url, dials))


def _split_authority(authority: str, url: str, dials: bool) -> tuple[str, str]:
    """Split host and port; the host of `[::1]:7400` keeps its brackets."""
    bracket = authority.rfind("]")
    host, colon, port = authority[bracket + 1 :].rpartition(":")
    host = authority[: bracket + 1] + host
    if ":" in host and not host.startswith("["):
        raise address_error(url, "write an IPv6 address in brackets, such as [::1]:7400")
    if not colon:
        hint = "the broker prints its ports when it starts" if dials else "port 0 means any free port"
        raise address_error(url, f"the port is missing; write {authority}:PORT ({hint})")
    return host, port


def _read_host(host: str, url: str) -> str:
    if not host:
        raise address_error(url, "the host is missing; write 127.0.0.1 for this machine, 0.0.0.0 for all its addresses")
    if host == "*":
        raise address_error(url, "'*' is not a host; write 0.0.0.0 to listen on all addresses")
    if host.startswith("[") and host.endswith("]"):
        return _read_ip(ipaddress.IPv6Address, host[1:-1], url)
    if re.fullmatch(r"[0-9.]+", host):
        return _read_ip(ipaddress.IPv4Address, host, url)
    if len(host) > 253 or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", host):
        raise address_error(url, f"{host!r} is not a host; write a name, an IPv4 address or [an IPv6 address]")
    return host


def _read_ip(kind: type[ipaddress.IPv4Address] | type[ipaddress.IPv6Address], text: str, url: str) -> str:
    try:
        kind(text)
    except ValueError as error:
        raise address_error(url, f"{text!r} is not an IP address: {error}") from None
    return text


def _read_port(text: str, url: str, dials: bool) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > MAX_PORT:
        allowed = f"1 to {MAX_PORT}" if dials else f"0 to {MAX_PORT}; 0 means any free port"
        raise address_error(url, f"the port {text!r} is not a number from {allowed}")
    return int(text)


def _split_options(query: str, url: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for piece in query.split("&") if query else ():
        raw_name, equals, raw_value = piece.partition("=")
        name = _decode(raw_name, url)
        if not name or not equals:
            raise address_error(url, f"the option {piece!r} is not of the form name=value")
        if name in options:
            raise address_error(url, f"the option {name!r} occurs twice; remove one")
        options[name] = _decode(raw_value, url)
    return options


def _decode(text: str, url: str) -> str:
    """Percent-decode. A `+` stays a `+`, unlike in a web form."""
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise address_error(url, "a '%' must be followed by two hex digits; write the character itself as %25")
    try:
        decoded = unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise address_error(url, "percent-encoded bytes must be UTF-8") from None
    _refuse_control_characters(decoded, url)
    return decoded


def _refuse_control_characters(decoded: str, url: str) -> None:
    if not decoded.isprintable():
        raise address_error(url, "control characters are not allowed in an address, not even percent-encoded")


def parse_frontend(text: str, beside: SocketAddress, url: str, *, dials: bool = False) -> SocketAddress:
    """Parse the percent-decoded value of `frontend=`: a port on the host of `beside`, or a whole socket address."""
    _refuse_control_characters(text, url)
    transport, separator, place = text.partition("://")
    if separator:
        network = "tls" if isinstance(beside, TlsAddress) else "tcp"  # callers get what workers get
        if transport not in (network, *_UNIX_TRANSPORTS):
            problem = f"must be a port, or start with {network}:// or ipc:// (no dialect)"
            raise address_error(url, f"frontend={text}: {problem}")
        if "?" in place or "#" in place:
            raise address_error(url, f"frontend={text}: has no options of its own; append them to the address itself")
        frontend = _read_place(transport, place, url, dials)
        if isinstance(beside, TlsAddress) and isinstance(frontend, TcpAddress):
            return dataclasses.replace(beside, host=frontend.host, port=frontend.port)
        return frontend
    if isinstance(beside, UnixAddress):
        raise address_error(
            url,
            f"frontend={text}: must be a whole percent-encoded URL, because the address has a path and no port: "
            "frontend=ipc%3A%2F%2F%2Ftmp%2Ff.ipc",
        )
    return dataclasses.replace(beside, port=_read_port(text, url, dials))


def is_loopback(place: SocketAddress) -> bool:
    """Return whether only this machine can reach `place`. Names are not resolved; only `localhost` counts."""
    if isinstance(place, UnixAddress) or place.host.lower() == "localhost":
        return True
    try:
        ip = ipaddress.ip_address(place.host)
    except ValueError:
        return False
    # Python versions differ on is_loopback of ::ffff:127.0.0.1, so the mapped IPv4 address is checked.
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (mapped or ip).is_loopback


def verifies_clients(place: SocketAddress) -> bool:
    """Return whether every client of this listener must show a certificate that it accepts."""
    return isinstance(place, TlsAddress) and bool(place.tls.client_ca)


def read_options(kind: type[T], options: Mapping[str, str], url: str, *, also: Collection[str] = ()) -> T:
    """Build the dataclass `kind` from an address's options.

    Fields have type float, int, bool, str, an Enum with str values, or one of these or None.
    `field(metadata={"min": 0, "max": 9})` bounds a number. `also` names further options, which are ignored here.
    A ValueError of `kind` itself, such as for fields that exclude each other, becomes an AddressError.
    """
    maker: Any = kind
    fields = [each for each in dataclasses.fields(maker) if each.init]
    _refuse_unknown_options(options, [*(each.name for each in fields), *also], url)
    hints = get_type_hints(kind)
    values = {}
    for each in fields:
        if each.name in options:
            values[each.name] = _read_option(each, hints[each.name], options[each.name], url)
        elif each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING:
            raise address_error(url, f"the option {each.name}= is missing")
    try:
        made: T = maker(**values)
    except ValueError as error:
        raise address_error(url, str(error)) from error
    return made


def _refuse_unknown_options(options: Mapping[str, str], known: Collection[str], url: str) -> None:
    for name in options:
        if name not in known:
            listed = ", ".join(sorted(set(known))) or "none"
            raise address_error(url, f"unknown option {name!r}{nearest(name, known)}; known options: {listed}")


def _read_option(option: dataclasses.Field[Any], kind: Any, text: str, url: str) -> object:
    try:
        value = read_value(kind, text)
        check_range(value, option.metadata.get("min"), option.metadata.get("max"))
    except ValueError as error:
        raise address_error(url, f"option {option.name}={text}: {error}") from None
    return value


def read_value(kind: Any, text: str) -> object:
    """Convert `text` to `kind`: float, int, bool, str or an Enum. The message of a ValueError starts with `must be`."""
    for inner in get_args(kind):
        if inner is not NoneType:
            kind = inner
    if issubclass(kind, Enum):
        return _read_member(kind, text)
    return _READERS[kind](text)


def _read_member(kind: type[Enum], text: str) -> Enum:
    values = [str(member.value) for member in kind]
    if text not in values:
        raise ValueError(f"must be one of {', '.join(values)}{nearest(text, values)}")
    return kind(text)


def _read_bool(text: str) -> bool:
    lowered = text.lower()
    if lowered in ("true", "yes", "1"):
        return True
    if lowered in ("false", "no", "0"):
        return False
    raise ValueError("must be true or false (or yes, no, 1, 0)")


def _read_int(text: str) -> int:
    match = re.fullmatch(r"(-?[0-9]{1,30})(KiB|MiB|GiB)?", text)
    if match is None:
        raise ValueError("must be a whole number such as 1000, or with KiB, MiB or GiB such as 64MiB")
    return int(match[1]) * _UNITS[match[2]]


_UNITS: Mapping[str | None, int] = {None: 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def _read_float(text: str) -> float:
    # float() alone would also accept "nan", "1_0", " 1" and digits of other scripts.
    if not re.fullmatch(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text) or not math.isfinite(float(text)):
        raise ValueError("must be a finite number such as 30 or 0.5")
    return float(text)


_READERS: Mapping[type, Callable[[str], object]] = {bool: _read_bool, int: _read_int, float: _read_float, str: str}


def check_range(value: object, low: float | None, high: float | None) -> None:
    """Raise ValueError (`must be …`) if a number is out of range. Other values are not checked."""
    if not isinstance(value, int | float):
        return
    if low is not None and value < low:
        raise ValueError(f"must be {low} or more")
    if high is not None and value > high:
        raise ValueError(f"must be {high} or less")


def nearest(name: str, known: Collection[str]) -> str:
    """Return a hint for an unknown name, ` (did you mean 'x'?)`, or an empty string if no known name is similar."""
    found = difflib.get_close_matches(name, sorted(known), 1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def address_error(url: str, problem: str) -> AddressError:
    """Return an error that shows the problem and `url`, with any password or token replaced by ***, and the name of
    DRAGOMAN_URL if that is its value: the user may have forgotten the variable."""
    shown = re.sub(r"://[^/?#]+@", "://***@", url)
    place, mark, query = shown.partition("?")
    if _SECRET_OPTION.search(query) or _SECRET_OPTION.search(unquote(query)):
        shown = f"{place}{mark}***"
    source = f" (the value of {URL_VARIABLE})" if os.environ.get(URL_VARIABLE) == url else ""
    return AddressError(f"bad address {shown!r}{source}: {problem}")
