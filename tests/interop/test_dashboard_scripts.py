"""The dashboard's scripts in Node: their types; numbers as text, series, HTML, and marks of charts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from node_packages import node_package

from dragoman.http.dashboard_pages import FOLDER

MODULES = ("format", "series", "dom", "charts")
START = "2026-01-01T00:00:00.000Z"


def evaluate(*expressions: str) -> list[Any]:
    """Return the values of expressions, in which the modules' names stand for their functions."""
    imports = "".join(f'import * as {each} from "{(FOLDER / each).as_uri()}.js";' for each in MODULES)
    program = f"{imports} console.log(JSON.stringify([{', '.join(expressions)}]))"
    words = ["node", "--no-warnings", "--input-type=module", "-e", program]
    done = subprocess.run(words, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    values: list[Any] = json.loads(done.stdout)
    return values


def test_types_of_scripts_are_right(request: pytest.FixtureRequest) -> None:
    """TypeScript checks the JSDoc comments and every use of the browser's interfaces."""
    modules = node_package(Path(request.config.cache.mkdir("typescript-node")), "typescript@5")
    flags = "--allowJs --checkJs --noEmit --noUnusedLocals --target es2023 --module esnext --moduleResolution bundler"
    words = ["node", str(modules / "typescript/bin/tsc"), *flags.split(), "--lib", "es2023,dom,dom.iterable"]
    files = [str(path) for path in sorted(FOLDER.rglob("*.js"))]
    checked = subprocess.run([*words, *files], capture_output=True, text=True, timeout=300)
    assert (checked.returncode, checked.stdout) == (0, "")


def test_numbers_as_text() -> None:
    expected = {
        "format.time(null)": "–",
        "format.time(0)": "< 0.5 ms",
        "format.time(0.0005)": "< 0.5 ms",
        "format.time(0.0171)": "17 ms",
        "format.time(1.94)": "1.9 s",
        "format.time(21.2)": "21 s",
        "format.time(125)": "2 m 05 s",
        "format.time(1000)": "17 min",
        "format.time(9000)": "2.5 h",
        "format.time(200000)": "2.3 d",
        "format.count(999999)": "999,999",
        "format.count(1204331)": "1.20 M",
        "format.later({delayed: 0, dependent: 0})": "",
        "format.later({delayed: 1234, dependent: 0})": "+ 1,234 delayed",
        "format.later({delayed: 1, dependent: 2})": "+ 1 delayed, 2 dependent",
        "format.rate(0.01)": "< 0.1",
        "format.rate(9.96)": "10",
        "format.rate(2010.4)": "2,010",
        "format.rate(12345)": "12.3 k",
        "format.bytes(1536)": "1.5 KiB",
        "format.percent(0)": "0 %",
        "format.percent(0.00001)": "< 0.01 %",
        "format.percent(0.0123)": "1.2 %",
        "format.percent(0 / 0)": "–",
    }
    assert dict(zip(expected, evaluate(*expected), strict=True)) == expected


def test_values_are_escaped() -> None:
    hostile = json.dumps("<img src=x onerror='x'>&\"")
    escaped = "&lt;img src=x onerror=&#39;x&#39;&gt;&amp;&quot;"
    found = evaluate(
        f'String(dom.html`<b title="${{{hostile}}}">${{{hostile}}}</b>`)',
        f"String(dom.html`${{[dom.html`<i>${{{hostile}}}</i>`, null, false, true, undefined, 0]}}`)",
        "String(dom.html`${{text: '<b>'}}`)",
    )
    assert found == [f'<b title="{escaped}">{escaped}</b>', f"<i>{escaped}</i>0", "[object Object]"]


@pytest.mark.parametrize(
    ("at", "expected", "begin"),
    [
        ("00:00:05", [1, 2, 9], START),  # within the last step: an unknown value is filled
        ("00:00:06", [2, None, 9], "2026-01-01T00:00:02.000Z"),
        ("00:00:09", [None, 9, 9], "2026-01-01T00:00:04.000Z"),  # the rates of a snapshot are about 10 s
        ("00:01:00", [9, 9, 9], "2026-01-01T00:00:56.000Z"),
    ],
)
def test_snapshot_moves_a_series(at: str, expected: list[int | None], begin: str) -> None:
    series = json.dumps({"from": START, "step": 2, "done": [1, 2, None]})
    move = f'(s => {{ series.advance(s, "2026-01-01T{at}.000Z", [[s.done, 9]]); return [s.done, s.from]; }})({series})'
    assert evaluate(move) == [[expected, begin]]


def test_gaps_are_not_drawn_and_marks_do_not_overlap() -> None:
    marks = json.dumps([{"ago": ago, "text": f"mark at {ago}"} for ago in (250, 249, 100, 90, 400)])
    values = json.dumps([1, None, 2, 3])
    lines = f"[{{name: 'done', color: 'done', values: {values}}}]"
    [drawn] = evaluate(f"String(charts.chart('x', {lines}, {{step: 100, marks: {marks}}}))")
    assert 'd="M0 75M66.67 50L100 25"' in drawn.replace("  ", ""), "a value that is not known is a gap"
    assert drawn.count('<line class="mark"') == 2, "near marks are one, and those before the beginning are left out"
    assert "mark at 250 + 1" in drawn
    assert "mark at 100 + 1" in drawn
    assert "mark at 400" not in drawn
