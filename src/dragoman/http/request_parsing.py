"""Parses requests: names in the path, the query and the body.

Values in a path or a query are text and become numbers where the schema has numbers. JSON is not converted, except
32.0, which JSON Schema calls an integer.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
from msgspec.structs import fields
from starlette.requests import Request

from dragoman.core.model import Payload
from dragoman.http.context import AppContext
from dragoman.http.operation_call import ClientDisconnected
from dragoman.http.problems import HttpError, problem
from dragoman.operations.schemas import OperationRequest
from dragoman.operations.validation import MOMENT, decode, explain

if TYPE_CHECKING:
    from starlette.types import Receive

JSON = "application/json"
MOST_DETAIL = 500
_anything: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Any)


def without(schema: type[Any], name: str, *left_out: str, open: Collection[str] = ()) -> type[Any]:
    """Return a schema without the fields that come another way; fields in `open` are optional."""
    kept: list[Any] = []
    for each in fields(schema):
        if each.name in open:
            kept.append((each.name, each.type | None, None))
        elif each.name not in left_out:
            kept.append((each.name, each.type) if each.required else (each.name, each.type, each.default))
    namespace = {"__doc__": schema.__doc__}
    return msgspec.defstruct(name, kept, bases=(OperationRequest,), namespace=namespace, module=__name__, kw_only=True)


def in_path(request: Request, name: str, kind: Any) -> Any:
    try:
        return msgspec.convert(request.path_params[name], kind, strict=False)
    except msgspec.ValidationError as error:
        _invalid(f"{name}, in the path: {explain(error, kind)}")


def in_query(request: Request, schema: type[Any]) -> Any:
    values: dict[str, str | list[str]] = {}
    for name, value in request.query_params.multi_items():
        if isinstance(_defaults(schema).get(name), tuple):  # a list: one parameter for each entry
            listed = values.setdefault(name, [])
            assert isinstance(listed, list)
            listed.append(value)
            continue
        if name in values:
            _invalid(f"{name[:64]}, in the query: it must not be repeated")
        values[name] = value
    try:
        parsed = msgspec.convert(values, schema, strict=False)
    except msgspec.ValidationError as error:
        _invalid(f"in the query: {explain(error, schema)}")
    for name, given in values.items():
        read = getattr(parsed, name)
        if read is None and _defaults(schema)[name] is None:  # otherwise null means something
            _invalid(f"{name}, in the query: leave it out instead of sending null")
        if isinstance(read, datetime) and "-" not in given[1:]:  # msgspec reads a number as seconds since 1970
            _invalid(f"in the query: {name}: {MOMENT}")
    return parsed


_known_defaults: dict[type[Any], dict[str, Any]] = {}


def _defaults(schema: type[Any]) -> dict[str, Any]:
    """Return the default of each field, cached: msgspec looks the fields up each time, which takes longest."""
    defaults = _known_defaults.get(schema)
    if defaults is None:
        defaults = _known_defaults[schema] = {each.name: each.default for each in fields(schema)}
    return defaults


async def body_of(context: AppContext, receive: Receive, most: int | None = None) -> Payload:
    """Return the body, which usually has arrived already, in one piece. `most`: its bytes, if less than max_payload."""
    limit = context.max_payload if most is None else min(most, context.max_payload)
    message = await receive()
    body: Payload = message.get("body", b"")
    while message.get("more_body", False) and len(body) <= limit:
        message = await receive()
        body = bytearray(body) if type(body) is bytes else body
        body += message.get("body", b"")
    if message["type"] != "http.request":
        raise ClientDisconnected
    if len(body) > limit:
        detail = f"max_payload is {limit} bytes." if most is None else f"This request has at most {limit} bytes."
        raise HttpError(problem(413, "too-large", "Too large", detail))
    return body


async def in_body(context: AppContext, request: Request, schema: type[Any]) -> Any:
    """Parse a JSON body. No body is an empty request."""
    body = await body_of(context, request.receive)
    if not body and not is_json(request):
        parsed: Any = {}
    elif not is_json(request):
        detail = f"Send {JSON}."
        raise HttpError(problem(415, "wrong-content-type", "Wrong content type", detail))
    else:
        parsed = _decoded(body)
    try:
        return msgspec.convert(parsed, schema)
    except msgspec.ValidationError as error:
        _invalid(f"in the body: {explain(error, schema)}")


def is_json(request: Request) -> bool:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type == JSON


def _decoded(body: Payload) -> Any:
    try:
        parsed = decode(_anything, body)
    except msgspec.ValidationError as error:
        _invalid(f"in the body: {error}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        detail = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise HttpError(problem(400, "malformed-json", "Malformed JSON", f"The body is not JSON: {detail}.")) from None
    if not isinstance(parsed, dict):
        return parsed
    return {name: int(each) if isinstance(each, float) and each.is_integer() else each for name, each in parsed.items()}


def _invalid(detail: str) -> NoReturn:
    raise HttpError(problem(422, "invalid", "Not valid", detail[:MOST_DETAIL]))
