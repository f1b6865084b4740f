"""The files of the dashboard: no inline scripts or styles, short, all in use, and readable in both themes."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from dragoman.http.dashboard_pages import FOLDER

FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
MOST_LINES = 250
IMPORT = re.compile(r'import\s*(?:([^"(]*?)\s*from\s*)?\(?"(\.[^"]+)"')
EXPORT = re.compile(r"^export (?:async )?(?:const|let|function|class) ([\w$]+)", re.MULTILINE)
INLINE = re.compile(
    r"""\sstyle\s*=|\son[a-z]+\s*=\s*["'$]|<style|javascript:|\beval\(|new Function|insertAdjacentHTML"""
)
TOKEN = re.compile(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);")
TEXT = ("ink", "ink-2", "ink-3", "accent", "done", "running", "waiting", "failed", "timed", "lost")
GROUNDS = ("bg", "panel", "sunk", "hover")
GRAPHICS = (
    "quiet",
    "p50",
    "p95",
    "p99",
    "native",
    "pingpong",
    "memodb",
    "powerhose",
    "controller",
    "majordomo",
    "http",
)


def name(path: Path) -> str:
    return path.relative_to(FOLDER).as_posix()


def imports(path: Path) -> list[tuple[Path, list[str]]]:
    """Return the modules that a module imports, with the imported names."""
    found = []
    for names, target in IMPORT.findall(path.read_text()):
        listed = re.findall(r"([\w$]+)(?:\s+as\s+[\w$]+)?\s*(?:,|})", names) if "{" in names else []
        found.append(((path.parent / target).resolve(), listed))
    return found


def test_files_are_short() -> None:
    lengths = {name(path): len(path.read_text().splitlines()) for path in FILES}
    assert {each: lines for each, lines in lengths.items() if lines > MOST_LINES} == {}


def test_no_file_has_inline_scripts_or_styles() -> None:
    """The Content-Security-Policy forbids both."""
    offences = [
        f"{name(path)}:{number} {line.strip()[:80]}"
        for path in FILES
        if path.suffix != ".css"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if INLINE.search(line)
    ]
    assert offences == []


def test_only_one_module_writes_html() -> None:
    writers = [name(path) for path in SCRIPTS if re.search(r"\b(inner|outer)HTML\b", path.read_text())]
    assert writers == ["dom.js"], "its templates escape"


def test_every_import_exists() -> None:
    offences = []
    found = [(path, target, names) for path in SCRIPTS for target, names in imports(path)]
    for path, target, names in found:
        exported = EXPORT.findall(target.read_text()) if target.exists() else []
        offences += [f"{name(path)} imports {each} from {target.name}" for each in names if each not in exported]
        offences += [] if target.exists() else [f"{name(path)} imports {target.name}"]
    assert offences == []


def test_every_name_is_exported_once() -> None:
    exports = {name(path): EXPORT.findall(path.read_text()) for path in SCRIPTS}
    assert {each: names for each, names in exports.items() if len(names) != len(set(names))} == {}


def test_every_file_is_in_use() -> None:
    links = re.findall(r'(?:src|href)="/ui/([^"]+)"', (FOLDER / "index.html").read_text())
    waiting = [(FOLDER / each).resolve() for each in links]
    reached = {(FOLDER / "index.html").resolve()}
    while waiting:
        path = waiting.pop()
        assert path.exists(), path.name
        if path not in reached:
            reached.add(path)
            waiting += [target for target, _ in imports(path)] if path.suffix == ".js" else []
    assert [name(path) for path in FILES if path.resolve() not in reached] == []


def test_every_file_comes_from_the_broker_itself() -> None:
    outside = [name(path) for path in FILES if re.search(r"https?://(?!www\.w3\.org/)", path.read_text())]
    assert outside == []


def luminance(color: str) -> float:
    """Relative luminance of WCAG 2."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_can_be_read(theme: str) -> None:
    tokens = {
        token: light if theme == "light" else dark
        for token, light, dark in TOKEN.findall((FOLDER / "style.css").read_text())
    }
    assert {*TEXT, *GROUNDS, *GRAPHICS} <= set(tokens)
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    texts = {f"{text} on {ground}": contrast(tokens[text], tokens[ground]) for text, ground in product(TEXT, GROUNDS)}
    texts |= {f"button of {each}": contrast(tokens["on-color"], tokens[each]) for each in ("accent", "failed")}
    assert {each: ratio for each, ratio in texts.items() if ratio < 4.5} == {}
    shapes = {each: contrast(tokens[each], tokens["panel"]) for each in GRAPHICS}
    assert {each: ratio for each, ratio in shapes.items() if ratio < 3} == {}
