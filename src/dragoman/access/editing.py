"""Changes lists in the TOML file of a principal, and leaves everything else as it was: comments, order, spaces.

A change is parsed again and compared with the intended values. If they differ, the file is left alone.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass

Item = str | int

# Parts of a list: strings, comments, brackets and commas, other values.
_PART = re.compile(r"""\s+|\#[^\n]*|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[\[\],]|[^\s"'\#\[\],]+""")


class NotEditable(ValueError):
    """The file is written in a way that this module does not change."""


@dataclass(slots=True)
class _ItemPlace:
    """Places in the text of one item: its first character, the one behind it, and the one behind its comma."""

    start: int
    end: int
    comma: int | None = None


@dataclass(frozen=True, slots=True)
class _ListPlace:
    """Places in the text of one list: behind its opening bracket, at its closing one, and of each item."""

    start: int
    end: int
    items: list[_ItemPlace]


def with_item(text: str, key: str, item: Item) -> str:
    """The text with this item at the end of the list of a key; the same text if the list has it."""
    values = tomllib.loads(text).get(key, [])
    if item in values:
        return text
    return _checked(text, key, [*values, item], lambda: _added(text, key, item))


def without_item(text: str, key: str, item: Item) -> str:
    """The text without this item in the list of a key. The list stays, also if it is empty then."""
    values = tomllib.loads(text).get(key, [])
    index = values.index(item)
    return _checked(text, key, values[:index] + values[index + 1 :], lambda: _removed(text, key, index))


def _checked(text: str, key: str, values: list[Item], change: Callable[[], str]) -> str:
    expected = {**tomllib.loads(text), key: values}
    try:
        changed = change()
        if tomllib.loads(changed) == expected:
            return changed
    except (IndexError, ValueError):
        pass
    shown = ", ".join(map(_literal, values))
    raise NotEditable(f"the list {key} is written in a way that this command does not change; write {key} = [{shown}]")


def _literal(item: Item) -> str:
    return json.dumps(item, ensure_ascii=False)


def _added(text: str, key: str, item: Item) -> str:
    place = _list_place(text, key)
    literal = _literal(item)
    if place is None:
        return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{key} = [{literal}]\n"
    if not place.items:
        return text[: place.start] + literal + text[place.start :]
    last = place.items[-1]
    behind = last.comma or last.end
    line_end = text.find("\n", behind, place.end)
    if line_end < 0:
        return f"{text[:behind]}{' ' if last.comma else ', '}{literal}{text[behind:]}"
    # The bracket is on a later line: the item gets a line, below the comment of the item before.
    indent = re.match(r"[ \t]*", text[text.rfind("\n", 0, last.start) + 1 :])
    fresh = f"\n{indent[0] if indent else ''}{literal}{',' if last.comma else ''}"
    return f"{text[:behind]}{'' if last.comma else ','}{text[behind:line_end]}{fresh}{text[line_end:]}"


def _removed(text: str, key: str, index: int) -> str:
    place = _list_place(text, key)
    if place is None:
        raise NotEditable(key)
    item = place.items[index]
    line_start = text.rfind("\n", 0, item.start) + 1
    rest = re.compile(r"[ \t]*,?[ \t]*(?:\#[^\n]*)?\n").match(text, item.end)
    is_first = not text[line_start : item.start].strip()
    if rest and is_first and (item.comma or item.end) <= rest.end() <= place.end:
        return text[:line_start] + text[rest.end() :]
    if item.comma is not None:
        return text[: item.start] + text[item.end : item.comma - 1] + text[item.comma :].lstrip(" \t")
    before = place.items[index - 1] if index else None
    if before is not None and not text[before.comma or 0 : item.start].strip():
        return text[: (before.comma or 1) - 1] + text[item.end :]  # with the comma before it
    return text[: item.start] + text[item.end :]


def _list_place(text: str, key: str) -> _ListPlace | None:
    """Find the list of a key. None: the file does not have the key."""
    found = re.search(rf"^[ \t]*{key}[ \t]*=[ \t]*\[", text, re.MULTILINE)
    if found is None:
        return None
    items: list[_ItemPlace] = []
    at = found.end()
    while (part := _PART.match(text, at)) is not None:
        at = part.end()
        if part[0] == "]":
            return _ListPlace(found.end(), part.start(), items)
        if part[0] == "[":
            break
        if part[0] == ",":
            items[-1].comma = at
        elif part[0][0] != "#" and not part[0].isspace():
            items.append(_ItemPlace(*part.span()))
    raise NotEditable(key)
