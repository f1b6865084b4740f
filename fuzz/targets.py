"""The table of fuzz targets, and their kept inputs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final, cast

# Name of the module in this folder -> the bytes that it reads.
TARGETS: Final = {
    "zmtp": "ZMTP with NULL: handshake and traffic, both sides",
    "zmtp_plain": "ZMTP with PLAIN: handshake and traffic, both sides",
    "zmtp_curve": "ZMTP with CURVE: handshake and traffic, both sides, changed on the way or made by a holder of keys",
    "tls": "TLS records of a genuine peer, cut, changed, dropped or inserted on the way",
    "certificates": "certificates in DER and PEM",
    "sp": "SP over TCP and ipc, both sides",
    "nats": "lines of a NATS server: INFO, messages with headers, errors",
    "nats_keys": "nkeys and files of credentials of NATS",
    "nats_log": "answers of JetStream and messages of shard logs",
    "length_prefix": "messages with a length prefix",
    "http_client": "HTTP responses",
    "http_framing": "heads and chunks of HTTP requests",
    "http_server": "HTTP connections: requests, limits, responses",
    "native": "messages of the native dialect",
    "memodb": "messages of MemoDB, compared with another CBOR library",
    "controller": "messages of Worker-Controller",
    "pingpong": "messages of PingPong",
    "powerhose": "messages of Powerhose",
    "majordomo": "messages of Majordomo",
    "http_dialect": "responses of the HTTP API",
    "principal_file": "files of principals",
    "key_files": "CURVE keys and certificates as text",
    "addresses": "addresses with their options",
}

CORPUS: Final = Path(__file__).parent / "corpus"


def load(target: str) -> Callable[[bytes], None]:
    """Return the function that reads one input, and raises if a property does not hold."""
    return cast(Callable[[bytes], None], import_module(f"fuzz.{target}").test_one_input)


def kept_inputs(target: str) -> list[Path]:
    """Return the files of the inputs that are kept for a target."""
    return sorted((CORPUS / target).iterdir())
