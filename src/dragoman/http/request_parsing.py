"""What a request says, as forms: names in its path, its query, its body.

Words of a path or a query are text and become numbers where a form wants numbers. JSON is taken as it is written, but
for 32.0, which JSON Schema calls an integer.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NoReturn

import msgspec
from msgspec.structs import fields
from starlette.requests import ClientDisconnect, Request

from dragoman.http.context import AppContext
from dragoman.http.operation_call import ClientDisconnected
from dragoman.http.problems import HttpError, problem
from dragoman.operations.schemas import OperationRequest
from dragoman.operations.validation import explain

JSON = "application/json"
MOST_DETAIL = 500


def without(form: type[Any], name: str, *left_out: str, open: Collection[str] = ()) -> type[Any]:
    """A form like this one, less the fields that come by another way; those left open may be said or not."""
    kept: list[Any] = []
    for each in fields(form):
        if each.name in open:
            kept.append((each.name, each.type | None, None))
        elif each.name not in left_out:
            kept.append((each.name, each.type) if each.required else (each.name, each.type, each.default))
    namespace = {"__doc__": form.__doc__}
    return msgspec.defstruct(name, kept, bases=(OperationRequest,), namespace=namespace, module=__name__, kw_only=True)


def in_path(request: Request, name: str, kind: Any) -> Any:
    try:
        return msgspec.convert(request.path_params[name], kind, strict=False)
    except msgspec.ValidationError as error:
        _invalid(f"{name}, in the path: {explain(error, kind)}")


def in_query(request: Request, form: type[Any]) -> Any:
    words: dict[str, str] = {}
    for name, word in request.query_params.multi_items():
        if name in words:
            _invalid(f"{name[:64]}, in the query: say it once")
        words[name] = word
    try:
        said = msgspec.convert(words, form, strict=False)
    except msgspec.ValidationError as error:
        _invalid(f"in the query: {explain(error, form)}")
    for name in words:
        if getattr(said, name) is None and _defaults(form)[name] is None:  # where that is a value, null says something
            _invalid(f"{name}, in the query: leave it out instead of saying null")
    return said


_known_defaults: dict[type[Any], dict[str, Any]] = {}


def _defaults(form: type[Any]) -> dict[str, Any]:
    """The default of each field. msgspec looks the fields up anew each time, which takes as long as all the rest."""
    defaults = _known_defaults.get(form)
    if defaults is None:
        defaults = _known_defaults[form] = {each.name: each.default for each in fields(form)}
    return defaults


async def body_of(context: AppContext, request: Request) -> bytes:
    try:
        body = await request.body()
    except ClientDisconnect:
        raise ClientDisconnected from None
    if len(body) > context.max_payload:
        detail = f"max_payload is {context.max_payload} bytes."
        raise HttpError(problem(413, "too-large", "Too large", detail))
    return body


async def in_body(context: AppContext, request: Request, form: type[Any]) -> Any:
    """The form that the body is, in JSON. No body at all is a form in which nothing is said."""
    body = await body_of(context, request)
    if not body and not is_json(request):
        said: Any = {}
    elif not is_json(request):
        detail = f"Send {JSON}."
        raise HttpError(problem(415, "wrong-content-type", "Wrong content type", detail))
    else:
        said = _decoded(body)
    try:
        return msgspec.convert(said, form)
    except msgspec.ValidationError as error:
        _invalid(f"in the body: {explain(error, form)}")


def is_json(request: Request) -> bool:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type == JSON


def _decoded(body: bytes) -> Any:
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        detail = "it is too deep" if isinstance(error, RecursionError) else str(error)
        raise HttpError(problem(400, "malformed-json", "Malformed JSON", f"The body is not JSON: {detail}.")) from None
    if not isinstance(said, dict):
        return said
    return {name: int(each) if isinstance(each, float) and each.is_integer() else each for name, each in said.items()}


def _invalid(detail: str) -> NoReturn:
    raise HttpError(problem(422, "invalid", "Not valid", detail[:MOST_DETAIL]))
