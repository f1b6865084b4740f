"""Reads the TOML file of one principal. Strict: everything unknown is an error."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeVar

from dragoman.access.identities import Identity, IdentityKind, read_identity
from dragoman.access.problems import AccessError, Problem
from dragoman.core.rights import ANYONE, LOCAL, PrincipalLimits, Right, Rights, check_pattern

T = TypeVar("T")

SUFFIX = ".toml"
MAX_FILE_BYTES = 256 << 10
MAX_NUMBER = 2**63 - 1

COUNTS = ("max_waiting", "max_running", "max_peers")
SIZES = ("max_waiting_bytes", "max_payload")
RATE = "max_rate"
EXPIRES = "expires"
KEYS = (*IdentityKind, *Right, *COUNTS, *SIZES, RATE, EXPIRES)

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_SIZE = re.compile(r"(\d{1,18})(KiB|MiB|GiB)")
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_LINE = re.compile(r"\(at line (\d+), column \d+\)|\(at end of document\)")


@dataclass(frozen=True, slots=True)
class PrincipalEntry:
    """One principal as its file describes it."""

    name: str
    file: str
    rights: Rights
    limits: PrincipalLimits
    identities: tuple[Identity, ...] = ()
    expires: float | None = None  # Unix time from which on it has no access

    def is_valid(self, now: float) -> bool:
        return self.expires is None or now < self.expires


def check_principal_name(name: str) -> None:
    """Raise ValueError if no file may describe a principal of this name."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not the name of a principal: write 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a "
            "letter or digit"
        )
    if name == LOCAL:
        raise ValueError(
            f"'{LOCAL}' is built in: it is the user of the broker, with all rights; choose another name, or write "
            "loopback=table in the URL of a listener"
        )


def read_principal(name: str, content: bytes, file: str) -> PrincipalEntry:
    """Read the file of a principal. Raises AccessError with all problems of the file."""
    try:
        check_principal_name(name)
    except ValueError as error:
        raise AccessError([Problem(file, None, f"{error}; rename the file")]) from None
    text = _decoded(content, file)
    try:
        return _FileReader(text, _parsed(text, file), file).entry(name)
    except ValueError:  # Python converts no number of so many digits from a text or, if it is hexadecimal, to one
        raise AccessError([Problem(file, None, "has a number of thousands of digits; write a smaller one")]) from None


def _decoded(content: bytes, file: str) -> str:
    if len(content) > MAX_FILE_BYTES:
        raise AccessError([Problem(file, None, f"has more than {MAX_FILE_BYTES} bytes; use several principals")])
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise AccessError([Problem(file, line, "is not UTF-8; save it as UTF-8")]) from None


def _parsed(text: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _LINE.search(str(error))
        line = int(found[1]) if found and found[1] else text.count("\n") + 1
        problem = _LINE.sub("", str(error)).strip()
        raise AccessError(
            [Problem(file, line, f'is not TOML: {problem}; write lines such as call = ["resize"]')]
        ) from None
    except RecursionError:
        raise AccessError([Problem(file, None, "is not TOML: it is nested too deeply")]) from None


class _FileReader:
    """Reads the values of one file, and collects its problems."""

    def __init__(self, text: str, values: Mapping[str, Any], file: str) -> None:
        self._text = text
        self._values = values
        self._file = file
        self._problems: list[Problem] = []

    def entry(self, name: str) -> PrincipalEntry:
        for key in self._values:
            if key not in KEYS:
                self._reject(key, _unknown(key, self._values[key]))
        identities = tuple(each for kind in IdentityKind for each in self._list(kind, partial(read_identity, kind)))
        if name == ANYONE and identities:
            problem = (
                "identifies peers; 'anyone' is every peer without an identity, and its file has rights and limits only"
            )
            self._reject(identities[0].kind, problem)
        patterns = {str(right): self._list(right, _pattern) for right in Right}
        limits: dict[str, Any] = {key: self._number(key) for key in (*COUNTS, *SIZES, RATE) if key in self._values}
        expires = self._expires()
        if self._problems:
            raise AccessError(self._problems)
        return PrincipalEntry(name, self._file, Rights(**patterns), PrincipalLimits(**limits), identities, expires)

    def _list(self, key: str, read: Callable[[object], T]) -> list[T]:
        values = self._values.get(key, [])
        if not isinstance(values, list):
            self._reject(key, f"must be a list; write {key} = [ … ], with brackets")
            return []
        found: list[T] = []
        for value in values:
            try:
                entry = read(value)
            except ValueError as error:
                self._reject(key, str(error), value)
                continue
            if entry in found:
                self._reject(key, "has the same entry twice; remove one", value)
            found.append(entry)
        return found

    def _number(self, key: str) -> int | float:
        value = self._values[key]
        if key in SIZES and isinstance(value, str) and (size := _SIZE.fullmatch(value)):
            value = int(size[1]) * _UNITS[size[2]]
        if key == RATE and type(value) in (int, float) and 0 < value <= MAX_NUMBER:
            return float(value)
        if key != RATE and type(value) is int and 1 <= value <= MAX_NUMBER:
            return value
        allowed = {RATE: "a number above 0"}.get(key, "a whole number, at least 1")
        allowed += ', or a size such as "64MiB"' if key in SIZES else ""
        self._reject(key, f"is {value!r}; write {allowed}, or remove the line for the default")
        return 1

    def _expires(self) -> float | None:
        value = self._values.get(EXPIRES)
        if isinstance(value, datetime) and value.tzinfo is not None:
            return value.timestamp()
        if isinstance(value, date) and not isinstance(value, datetime):
            return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
        if value is not None:
            allowed = "write a date such as 2027-01-01 (midnight UTC), or a time with its zone: 2027-01-01T12:00:00Z"
            self._reject(EXPIRES, f"is not a moment; {allowed}, without quotes")
        return None

    def _reject(self, key: str, problem: str, value: object = None) -> None:
        self._problems.append(Problem(self._file, line_of(self._text, key, value), f"{key} {problem}"))


def _unknown(key: str, value: object) -> str:
    if isinstance(value, dict):
        return "is a table; the file of a principal has no tables"
    near = get_close_matches(key, KEYS, 1)
    return f"is not a key; did you mean '{near[0]}'?" if near else f"is not a key; allowed are {', '.join(KEYS)}"


def _pattern(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"has the entry {value!r}; write the name of a service in quotes")
    try:
        check_pattern(value)
    except ValueError as error:
        raise ValueError(f"has an invalid pattern: {error}") from None
    return value


def line_of(text: str, key: str, value: object = None) -> int | None:
    """The line of a key or, in its list, of a value. None if it is not found: TOML has several ways to write both."""
    name = re.escape(key)
    found = re.search(rf"^[ \t]*\[*[ \t]*(?:\"{name}\"|'{name}'|{name})[ \t]*[=.\]]", text, re.MULTILINE)
    if found is None:
        return None
    place = found.end()
    if value is not None:
        literal = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
        places = [text.find(each, place) for each in {literal, literal.replace('"', "'")}]
        place = min((each for each in places if each >= 0), default=place)
    return text.count("\n", 0, place) + 1
