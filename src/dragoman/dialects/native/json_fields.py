"""Fields of the JSON in HELLO and WELCOME. Each function raises Malformed for an invalid value."""

from __future__ import annotations

import json
from typing import Any

from dragoman.carriers.carrier import Message
from dragoman.carriers.malformed import Malformed
from dragoman.core.task_parameters import read_declaration
from dragoman.dialects.native.messages import MOST_TEXT


def read_json(message: Message) -> dict[str, Any]:
    if len(message) != 2 or len(message[1]) > MOST_TEXT:
        raise Malformed("malformed", f"a head and at most {MOST_TEXT} bytes of JSON are required")
    try:
        about = json.loads(bytes(message[1]).decode())  # a text: bytes would be tried as UTF-16, too
    except (ValueError, RecursionError):
        raise Malformed("malformed", "the second frame is not JSON") from None
    if not isinstance(about, dict):
        raise Malformed("malformed", "the JSON is not an object")
    return about


def text_field(about: dict[str, Any], key: str, default: str) -> str:
    value = about.get(key, default)
    if not isinstance(value, str) or len(value.encode("utf-8", "replace")) > 128:
        raise Malformed("malformed", f"{key} must be a text of at most 128 bytes")
    return value


def services_field(about: dict[str, Any]) -> tuple[str, ...]:
    services = names_in(about.get("services"))
    if not services:
        raise Malformed("malformed", "services must be a list of at least one name")
    return tuple(services)


def names_in(value: Any) -> list[str]:
    """Return a list of texts; an empty one in place of anything else."""
    return value if isinstance(value, list) and all(isinstance(each, str) for each in value) else []


def parameters_field(about: dict[str, Any]) -> dict[str, dict[str, Any]] | None:
    """Return the parameters that a worker declares, by service; None if it declares none."""
    value = about.get("parameters")
    if value is None:
        return None
    if not isinstance(value, dict):
        raise Malformed("malformed", "parameters must be an object with a JSON Schema object for each service")
    try:
        return {name: read_declaration(each) for name, each in value.items()}
    except ValueError as error:
        raise Malformed("malformed", str(error)) from None


def session_field(about: dict[str, Any]) -> str:
    session = about.get("session", "")
    if not isinstance(session, str) or (session and not _is_hex(session)):
        raise Malformed("malformed", "session must be 32 hex digits")
    return session.lower()


def _is_hex(text: str) -> bool:
    return len(text) == 32 and all(char in "0123456789abcdefABCDEF" for char in text)


def count_field(about: dict[str, Any], key: str, default: int, most: int) -> int:
    value = about.get(key, default)
    if type(value) is not int or not min(default, 1) <= value <= most:
        raise Malformed("malformed", f"{key} must be a number from 1 to {most}")
    return value


def seconds_field(about: dict[str, Any], key: str, default: float) -> float:
    value = about.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise Malformed("malformed", f"{key} must be a number of seconds")
    return float(value)
