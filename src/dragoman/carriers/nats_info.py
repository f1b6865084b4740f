"""INFO of NATS: the facts that a server states about itself, first when a connection opens and again when they change.

INFO is a JSON object. Fields that are unknown here are ignored, and missing ones have the defaults below. A field of a
wrong type is Malformed. The server repeats INFO after the handshake, when servers join or leave its cluster
(`connect_urls`), and before it stops (`is_leaving`, *lame duck mode*); not when an operator lowers `max_payload`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from dragoman.carriers.malformed import Malformed

MAX_URLS: Final = 1000  # of `connect_urls`; more are ignored
MAX_URL: Final = 300  # characters of one


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Facts about a server. The names in INFO are in parentheses where they differ."""

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    cluster: str = ""
    max_payload: int = 1 << 20  # bytes of headers and payload of a message that the server accepts
    has_headers: bool = False  # (headers)
    has_jetstream: bool = False  # (jetstream) this server itself; others of its cluster may have it
    tls_required: bool = False
    tls_available: bool = False
    auth_required: bool = False
    nonce: str = ""  # to be signed with an nkey
    client_id: int = 0  # number of this connection at this server
    client_ip: str = ""
    connect_urls: tuple[str, ...] = ()  # host:port of the servers of its cluster
    is_leaving: bool = False  # (ldm) the server stops soon: connect to another

    @property
    def release(self) -> tuple[int, ...]:
        """The version as numbers, such as (2, 14, 0); empty if it is not made of numbers."""
        parts = self.version.partition("-")[0].split(".")
        return tuple(int(each) for each in parts) if all(_is_number(each) for each in parts) else ()


def read_info(text: bytes) -> ServerInfo:
    """Read the JSON of INFO. Raises Malformed."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise Malformed("bad INFO", "INFO is not a JSON object") from None
    if not isinstance(found, dict):
        raise Malformed("bad INFO", "INFO is not a JSON object")
    size = _number(found, "max_payload", 1 << 20)
    if size < 1:
        raise Malformed("bad INFO", f"max_payload in INFO is {size}; it is a number of bytes above 0")
    return ServerInfo(
        server_id=_text(found, "server_id"),
        server_name=_text(found, "server_name"),
        version=_text(found, "version"),
        cluster=_text(found, "cluster"),
        max_payload=size,
        has_headers=_flag(found, "headers"),
        has_jetstream=_flag(found, "jetstream"),
        tls_required=_flag(found, "tls_required"),
        tls_available=_flag(found, "tls_available"),
        auth_required=_flag(found, "auth_required"),
        nonce=_text(found, "nonce"),
        client_id=_number(found, "client_id", 0),
        client_ip=_text(found, "client_ip"),
        connect_urls=_urls(found),
        is_leaving=_flag(found, "ldm"),
    )


def _text(found: dict[str, Any], name: str) -> str:
    value = found.get(name, "")
    if not isinstance(value, str):
        raise _wrong(name, "a text")
    return value


def _flag(found: dict[str, Any], name: str) -> bool:
    value = found.get(name, False)
    if not isinstance(value, bool):
        raise _wrong(name, "true or false")
    return value


def _number(found: dict[str, Any], name: str, default: int) -> int:
    value = found.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise _wrong(name, "a number from 0 to 2^63")
    return value


def _urls(found: dict[str, Any]) -> tuple[str, ...]:
    value = found.get("connect_urls")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _wrong("connect_urls", "a list of texts")
    return tuple([each for each in value if len(each) <= MAX_URL][:MAX_URLS])


def _wrong(name: str, allowed: str) -> Malformed:
    return Malformed("bad INFO", f"{name} in INFO is not {allowed}")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
