"""Writes docs/reference/settings.md from the settings of `serve` and the options of listeners:
`python tools/settings_page.py`.

Names, kinds and ranges come from the code. Defaults and meanings come from the tables of the pages that explain them,
which `tests/unit/test_docs.py` compares with the code.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, get_args, get_type_hints

from dragoman.core.policy import GIB, MIB
from dragoman.dialects.catalogue import DIALECTS, Dialect
from dragoman.server.config import OWN_FLAGS, load, setting_range
from dragoman.server.listener_security import security_options
from dragoman.server.wiring import ListenerOptions

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "reference" / "settings.md"

HEAD = """# Settings

`make generate` writes this page from the code. Flags win over environment variables, those over the file, that over the
defaults ([more](../operate.md#settings)). `dragoman config` prints the values in use and their sources.
Limits of what all principals share leave places to each of them ([shares](../security.md#principals-and-rights)).
Times are seconds. Sizes are bytes, or are written as `64KiB`, `64MiB`, `1GiB`.

## Settings of a broker

A setting is a key of the TOML file, an environment variable (`max_jobs` is `DRAGOMAN_MAX_JOBS`), and a flag:
`--set max_jobs=1000`, or the flag in the table.

| setting | flag | values | default | meaning |
|---|---|---|---|---|
"""

OPTIONS_HEAD = """
## Options of listeners

Options are in the URL of a listener: `pingpong+tcp://127.0.0.1:7401?frontend=7402&job_timeout=30`. An unknown option is
an error, with a suggestion. Options of workers and clients are on the page of each dialect.
With `+tls` or `https`, a URL also has the options of [TLS](../operate.md#tls).
"""

CLIENTS = """
## Variables of clients, workers and commands

| variable | meaning |
|---|---|
| `DRAGOMAN_URL` | default address of clients, workers and commands; it may have options |
| `DRAGOMAN_KEY` | name of a key of CURVE, or the path of its file |
| `DRAGOMAN_SERVER_KEY` | the broker's public key |
| `DRAGOMAN_TOKEN` | token |
| `DRAGOMAN_TOKEN_FILE` | path of a file that has the token |

An argument or an option of the URL wins over a variable ([more](../python.md#keys-tokens-and-tls)).
"""

# Ranges that end here have an end only so that no sum overflows.
LONGEST_TIME = 10 * 365 * 86_400
LONGEST_SIZE = 2**62
KINDS = {str: "text", int: "whole number", float: "number", bool: "true or false"}


def page() -> str:
    return HEAD + "".join(_settings()) + OPTIONS_HEAD + "".join(_dialect(row) for row in DIALECTS.values()) + CLIENTS


def _settings() -> Iterator[str]:
    meanings = _meanings(DOCS / "operate.md", "Settings")
    _, defaults = load({}, {}, None)
    for each in defaults:
        flag = f"`--{each.name.replace('_', '-')}`" if each.name in OWN_FLAGS else ""
        flag = "arguments" if each.name == "listen" else flag
        default, meaning = meanings[each.name]
        default = default.removesuffix(", see above")  # of the page that explains it
        yield f"| `{each.name}` | {flag} | {_values(each.name)} | {default} | {meaning} |\n"


def _values(name: str) -> str:
    allowed = setting_range(name)
    if allowed.choices:
        return ", ".join(f"`{choice}`" for choice in allowed.choices)
    return _range(allowed.kind.removeprefix("a "), allowed.least, allowed.most)


def _range(kind: str, least: float | None, most: float | None) -> str:
    if least is None:
        return kind
    if most is None or most >= (LONGEST_SIZE if isinstance(most, int) and kind != "number" else LONGEST_TIME):
        return f"{kind}, at least {_number(least)}"
    return f"{kind}, {_number(least)} to {_number(most)}"


def _number(value: float) -> str:
    if isinstance(value, int) and value >= MIB and value % MIB == 0:
        return f"{value // GIB}GiB" if value % GIB == 0 else f"{value // MIB}MiB"
    return f"{value:.10g}"


def _dialect(row: Dialect) -> str:
    path = "http.md" if row.name == "http" else f"dialects/{row.name}.md"
    meanings = _meanings(DOCS / path, "Options of a listener")
    own = getattr(importlib.import_module(row.options), "ListenerOptions", None)
    kinds: list[type[Any]] = [own] if own is not None else []
    kinds += [ListenerOptions, *security_options(row), resolve_name(row.limits)]
    fields = {each.name: (kind, each) for kind in reversed(kinds) for each in dataclasses.fields(kind)}
    lines = [f"\n### {row.title}\n\nExplained on its [page](../{path}#options-of-a-listener).\n\n"]
    lines += ["| option | values | default | meaning |\n|---|---|---|---|\n"]
    lines += [
        f"| `{name}` | {_option_values(*fields[name])} | {default} | {meaning} |\n"
        for name, (default, meaning) in meanings.items()
    ]
    return "".join(lines)


def _option_values(owner: type[Any], field: dataclasses.Field[Any]) -> str:
    kind = get_type_hints(owner)[field.name]
    kind = next((each for each in get_args(kind) if each is not type(None)), kind)
    if issubclass(kind, Enum):
        return ", ".join(f"`{each.value}`" for each in kind)
    return _range(KINDS.get(kind, "text"), field.metadata.get("min"), field.metadata.get("max"))


def _meanings(path: Path, heading: str) -> dict[str, tuple[str, str]]:
    """Default and meaning of each name in the tables of a chapter. Links are made to lead there from the reference."""
    chapter = re.split(rf"^## {heading}$", path.read_text(), flags=re.MULTILINE)[1].split("\n## ")[0]
    found = {}
    for name, default, meaning in re.findall(r"^\| `(\w+)` \| (.*?) \| (.*) \|$", chapter, re.MULTILINE):
        found[name] = (default, re.sub(r"\]\((#|[\w./-]+)", lambda link: f"]({_link(path, link[1])}", meaning))
    return found


def _link(path: Path, target: str) -> str:
    file = path if target == "#" else (path.parent / target).resolve()
    return f"../{file.relative_to(DOCS)}" + ("#" if target == "#" else "")


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
