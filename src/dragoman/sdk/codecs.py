"""Codecs: convert Python objects to payloads and back. Payloads are plain bytes, JSON, CBOR or pickle.

Pickle must be requested by name. A program that unpickles payloads runs any code that the sender puts into them, both
in jobs and in results.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

Payload = bytes | bytearray

JSON_SEPARATOR = b"\n"  # never occurs inside the JSON that `_to_json` writes


@dataclass(frozen=True, slots=True)
class Codec:
    """A pair of functions that encode and decode payloads. They may raise any exception of the format's library."""

    name: str
    encode: Callable[[Any], Payload]
    decode: Callable[[Payload], Any]
    decode_whole: Callable[[Payload], Any]  # result with its parts in front: a list if there is more than one object
    separator: bytes = b""  # appended to each part, so that joined objects can be separated


def codec(name: str | Codec) -> Codec:
    """Return the codec with this name; a codec stands for itself. Raises ValueError if the name is unknown."""
    if isinstance(name, Codec):
        return name
    try:
        return CODECS[name]
    except KeyError:
        raise ValueError(f"unknown codec {name!r}; known codecs: {', '.join(CODECS)}") from None


def as_bytes(value: object) -> Payload:
    """Return bytes-like values as bytes, text as UTF-8, and None as b""."""
    if isinstance(value, bytes | bytearray):
        return value
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    if value is None:
        return b""
    raise TypeError(
        f"a payload must be bytes, str or None, not {type(value).__name__}; "
        "use codec='json' or codec='cbor' for objects"
    )


def _to_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _from_json(payload: Payload) -> Any:
    return json.loads(payload)


def _to_cbor(value: object) -> bytes:
    import cbor2

    return cbor2.dumps(value)


def _from_cbor(payload: Payload) -> Any:
    import cbor2

    return cbor2.loads(payload)


def _to_pickle(value: object) -> bytes:
    import pickle

    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def _from_pickle(payload: Payload) -> Any:
    import pickle

    return pickle.loads(payload)  # noqa: S301 - requested by name


def _whole_json(payload: Payload) -> Any:
    try:
        return json.loads(payload)
    except json.JSONDecodeError:
        lines = bytes(payload).split(JSON_SEPARATOR)
        if len(lines) == 1:
            raise
        return [json.loads(line) for line in lines]


def _whole_cbor(payload: Payload) -> Any:
    import cbor2

    return _all_of(payload, cbor2.load)


def _whole_pickle(payload: Payload) -> Any:
    import pickle

    return _all_of(payload, pickle.load)


def _all_of(payload: Payload, load: Callable[[BytesIO], Any]) -> Any:
    stream = BytesIO(payload)
    values = [load(stream)]
    while stream.tell() < len(payload):
        values.append(load(stream))
    return values if len(values) > 1 else values[0]


CODECS: Mapping[str, Codec] = {
    "bytes": Codec("bytes", as_bytes, bytes, bytes),
    "json": Codec("json", _to_json, _from_json, _whole_json, JSON_SEPARATOR),
    "cbor": Codec("cbor", _to_cbor, _from_cbor, _whole_cbor),
    "pickle": Codec("pickle", _to_pickle, _from_pickle, _whole_pickle),
}
