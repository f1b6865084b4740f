"""Formats of arguments and results: JSON, CBOR or MessagePack, with the types of annotations checked by msgspec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final, Literal

import msgspec

Payload = bytes | bytearray
FormatName = Literal["json", "cbor", "msgpack"]


@dataclass(frozen=True, slots=True)
class Format:
    """A format: encodes any supported object, and makes decoders for types."""

    name: FormatName
    encode: Callable[[Any], bytes]
    decoder: Callable[[Any], Callable[[Payload], Any]]  # its functions raise msgspec.DecodeError


def format_of(name: str) -> Format:
    """Return the format with this name. Raises ValueError if the name is unknown."""
    try:
        return FORMATS[name]
    except KeyError:
        raise ValueError(f"unknown format {name!r}; known formats: {', '.join(FORMATS)}") from None


def to_builtin(value: object) -> Any:
    """Convert an object that msgspec does not know: models of pydantic. Raises TypeError."""
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    raise TypeError(
        f"the type {type(value).__name__} cannot be that of an argument or a result; use a dataclass, a "
        "msgspec.Struct, a pydantic model, or builtin types"
    )


def is_decodable(kind: type) -> bool:
    """Return whether `from_builtin` makes values of this type."""
    return kind is object or hasattr(kind, "model_validate_json")


def from_builtin(kind: type, value: object) -> Any:
    """Convert a decoded value to a type that msgspec does not know: models of pydantic. Raises TypeError and
    ValueError."""
    if kind is object:
        return value
    validate = getattr(kind, "model_validate_json", None)
    if validate is not None:
        try:  # as JSON, which it was made for: a strict model takes no text for a datetime otherwise
            return validate(msgspec.json.encode(value))
        except ValueError as error:
            raise ValueError(_in_one_line(error)) from None
    raise TypeError(f"the annotation {kind!r} is no type that can be decoded")


def _in_one_line(error: ValueError) -> str:
    """Return the errors of a model as one line: `age: Input should be greater than 0`."""
    found: Callable[[], list[dict[str, Any]]] | None = getattr(error, "errors", None)
    if found is None:
        return str(error)
    return "; ".join(": ".join(filter(None, (".".join(map(str, each["loc"])), each["msg"]))) for each in found())


def _json_decoder(kind: Any) -> Callable[[Payload], Any]:
    return msgspec.json.Decoder(kind, dec_hook=from_builtin).decode


def _msgpack_decoder(kind: Any) -> Callable[[Payload], Any]:
    return msgspec.msgpack.Decoder(kind, dec_hook=from_builtin).decode


def _to_cbor(value: object) -> bytes:
    import cbor2

    return cbor2.dumps(msgspec.to_builtins(value, builtin_types=CBOR_TYPES, enc_hook=to_builtin))


def _cbor_decoder(kind: Any) -> Callable[[Payload], Any]:
    def decode(payload: Payload) -> Any:
        import cbor2

        stream = BytesIO(payload)
        try:
            found = cbor2.load(stream)
        except cbor2.CBORDecodeError as error:
            raise msgspec.DecodeError(str(error)) from None
        if stream.tell() != len(payload):
            raise msgspec.DecodeError(f"CBOR is malformed: trailing characters (byte {stream.tell()})")
        return msgspec.convert(found, kind, builtin_types=CBOR_TYPES, dec_hook=from_builtin)

    return decode


CBOR_TYPES: Final = (bytes, bytearray)  # JSON has them as base64, CBOR as they are
FORMATS: Final[dict[str, Format]] = {
    "json": Format("json", msgspec.json.Encoder(enc_hook=to_builtin).encode, _json_decoder),
    "cbor": Format("cbor", _to_cbor, _cbor_decoder),
    "msgpack": Format("msgpack", msgspec.msgpack.Encoder(enc_hook=to_builtin).encode, _msgpack_decoder),
}
