"""Fields of requests as data: type, description, limits and default, as the request types declare them.

Docstrings of clients, options of commands and `docs/operations.md` are generated from this.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from msgspec import Meta, Struct
from msgspec.structs import fields

from dragoman.operations.schemas import DAY, OperationRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestField:
    """One field. `least` and `most` bound a number, `shortest` and `longest` the characters of a text."""

    name: str
    kind: type[Any]  # str, int, float, bool or datetime; dict for an object with fields of its own
    is_required: bool
    default: Any = None
    is_list: bool = False
    is_nullable: bool = False  # None, or null in JSON, is allowed
    choices: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  # texts that are allowed besides a number
    description: str = ""
    least: float | None = None
    most: float | None = None
    is_above_least: bool = False  # `least` itself is not allowed
    shortest: int | None = None
    longest: int | None = None
    most_entries: int | None = None  # of a list

    @property
    def limits(self) -> str:
        """`0 to 9`, `more than 0, at most 86400 (1 day)`, `1 to 128 characters`; empty if there are none."""
        if self.choices:
            return ", ".join(self.choices[:-1]) + f" or {self.choices[-1]}"
        if self.most is not None:
            most = _number(self.most)
            words = "".join(f", or {each}" for each in self.words)
            range = f"more than {self.least:g}, at most {most}" if self.is_above_least else f"{self.least:g} to {most}"
            return range + words
        if self.most_entries is not None:
            return f"0 to {self.most_entries} entries"
        return f"{self.shortest or 0} to {self.longest} characters" if self.longest is not None else ""

    @property
    def default_text(self) -> str:
        """The default, for readers; empty if the field is required or has none."""
        if self.is_required or self.default is None:
            return ""
        if isinstance(self.default, bool):
            return str(self.default).lower()
        if self.is_list:
            return ", ".join(self.default) or "none"
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)


def request_fields(request: type[OperationRequest]) -> list[RequestField]:
    """The fields of a request type, in their order."""
    return [_field(each.name, each.type, each.required, each.default) for each in fields(request)]


def _field(name: str, kind: Any, is_required: bool, default: Any) -> RequestField:
    facts: dict[str, Any] = {}
    while kind not in (str, int, float, bool, datetime, dict):
        origin, inner = get_origin(kind), get_args(kind)
        if origin is Annotated:
            facts = _facts(inner[1:]) | facts
            kind = inner[0]
        elif origin in (Union, UnionType):
            facts["is_nullable"] = NoneType in inner or facts.get("is_nullable", False)
            kind, *others = (each for each in inner if each is not NoneType)
            if others:
                facts["words"] = get_args(others[0])
        elif origin is tuple:
            facts |= {"is_list": True, "most_entries": facts.pop("longest", None)}
            kind = inner[0]
        elif origin is Literal:
            facts["choices"] = inner
            kind = str
        elif isinstance(kind, type) and issubclass(kind, Struct):
            kind = dict
        else:
            raise TypeError(f"field {name!r}: type {kind} is not supported in a request")
    return RequestField(
        name=name, kind=kind, is_required=is_required, default=None if is_required else default, **facts
    )


def _facts(metas: tuple[Any, ...]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for meta in metas:
        assert isinstance(meta, Meta)
        found = {
            "description": meta.description,
            "least": meta.ge if meta.gt is None else meta.gt,
            "is_above_least": meta.gt is not None or None,
            "most": meta.le,
            "shortest": meta.min_length,
            "longest": meta.max_length,
        }
        facts |= {name: value for name, value in found.items() if value is not None}
    return facts


def _number(most: float) -> str:
    """`86400 (1 day)`."""
    text = f"{most:.0f}" if float(most).is_integer() else f"{most:g}"
    days = most / DAY
    if days < 1 or not days.is_integer() or most > 1_000 * DAY:
        return text
    return f"{text} ({days:g} day{'' if days == 1 else 's'})"
