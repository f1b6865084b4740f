"""Formats of arguments and results: JSON, CBOR or MessagePack, with the types of annotations checked by msgspec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final, Literal

import msgspec

from dragoman.core.results_payload import Entry, Result
from dragoman.sdk.codecs import JSON_SEPARATOR

Payload = bytes | bytearray
FormatName = Literal["json", "cbor", "msgpack"]


@dataclass(frozen=True, slots=True)
class Format:
    """A format: encodes any supported object, and makes decoders for types."""

    name: FormatName
    encode: Callable[[Any], bytes]
    decoder: Callable[[Any], Callable[[Payload], Any]]  # its functions raise msgspec.DecodeError
    merge: Callable[[Payload, str, Entry], bytes]  # adds results of jobs to encoded arguments, under a name
    # For values one after the other, as joined parts are; None: they cannot be told apart.
    decoder_of_all: Callable[[Any], Callable[[Payload], list[Any]]] | None = None
    separator: bytes = b""  # after each of these values


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


def _merge_json(arguments: Payload, name: str, entry: Entry) -> bytes:
    values = msgspec.json.decode(arguments or b"{}", type=dict[str, msgspec.Raw])
    _refuse_second(values, name)
    if isinstance(entry, list):
        values[name] = msgspec.Raw(b"[" + b",".join([_one_json(each) for each in entry]) + b"]")
    else:
        values[name] = msgspec.Raw(_one_json(entry))
    return msgspec.json.encode(values)


def _one_json(result: Result) -> bytes:
    """Return a result as it is. Raises DecodeError unless it is one value."""
    if result is None:
        return b"null"
    msgspec.json.decode(result)
    return bytes(result)


def _merge_msgpack(arguments: Payload, name: str, entry: Entry) -> bytes:
    values = msgspec.msgpack.decode(arguments or b"\x80", type=dict[str, Any])
    _refuse_second(values, name)
    decode = msgspec.msgpack.decode
    found = [None if each is None else decode(each) for each in (entry if isinstance(entry, list) else [entry])]
    values[name] = found if isinstance(entry, list) else found[0]
    return msgspec.msgpack.encode(values)


def _merge_cbor(arguments: Payload, name: str, entry: Entry) -> bytes:
    import cbor2

    try:
        values = cbor2.loads(arguments) if arguments else {}
        if not isinstance(values, dict):
            raise msgspec.DecodeError("the arguments are no map")
        _refuse_second(values, name)
        found = [
            None if each is None else cbor2.loads(each) for each in (entry if isinstance(entry, list) else [entry])
        ]
    except cbor2.CBORDecodeError as error:
        raise msgspec.DecodeError(str(error)) from None
    values[name] = found if isinstance(entry, list) else found[0]
    return cbor2.dumps(values)


def _refuse_second(values: dict[str, Any], name: str) -> None:
    if name in values:
        raise ValueError("it is given as an argument, too")


def _json_decoder(kind: Any) -> Callable[[Payload], Any]:
    return msgspec.json.Decoder(kind, dec_hook=from_builtin).decode


def _json_lines_decoder(kind: Any) -> Callable[[Payload], list[Any]]:
    return msgspec.json.Decoder(kind, dec_hook=from_builtin).decode_lines


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


def _cbor_sequence_decoder(kind: Any) -> Callable[[Payload], list[Any]]:
    def decode(payload: Payload) -> list[Any]:
        import cbor2

        stream, found = BytesIO(payload), []
        try:
            while stream.tell() < len(payload):
                found.append(cbor2.load(stream))
        except cbor2.CBORDecodeError as error:
            raise msgspec.DecodeError(str(error)) from None
        return [msgspec.convert(each, kind, builtin_types=CBOR_TYPES, dec_hook=from_builtin) for each in found]

    return decode


CBOR_TYPES: Final = (bytes, bytearray)  # JSON has them as base64, CBOR as they are
FORMATS: Final[dict[str, Format]] = {
    "json": Format(
        "json",
        msgspec.json.Encoder(enc_hook=to_builtin).encode,
        _json_decoder,
        _merge_json,
        _json_lines_decoder,
        JSON_SEPARATOR,
    ),
    "cbor": Format("cbor", _to_cbor, _cbor_decoder, _merge_cbor, _cbor_sequence_decoder),
    "msgpack": Format("msgpack", msgspec.msgpack.Encoder(enc_hook=to_builtin).encode, _msgpack_decoder, _merge_msgpack),
}
