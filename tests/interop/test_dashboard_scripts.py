"""The dashboard's scripts in Node: their types; numbers as text, series, HTML, and marks of charts."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from node_packages import node_package

from dragoman.http.dashboard_pages import FOLDER
from dragoman.sdk.printable import printable

MODULES = ("format", "series", "dom", "charts", "visible", "verbs", "routes")
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
        "format.took(0)": "< 1 ms",
        "format.took(0.004)": "4 ms",
        "format.took(0.0171)": "17 ms",
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


def test_invisible_characters_are_shown() -> None:
    """As commands do it. Names of services were shown in another order, as nothing, or like another name."""
    names = [
        "abc\u202egnp.exe",
        " ",
        "\xa0",
        "a\u200bb",
        "a\n\tb",
        "caf\xe9 \u65e5\u672c",
        "a b",
        "\U000e0041",
        "\x1b[0m",
    ]
    found = evaluate(*(f"visible.visibleLines({json.dumps(each)})" for each in names))
    assert found == [printable(each) if each != " " else "\\x20" for each in names]
    assert evaluate("visible.visible('a\\nb')", "visible.exact(' a  b ')") == ["a\\nb", "\\x20a \\x20b\\x20"]


def test_invisible_characters_are_shown_in_texts_and_kept_in_addresses() -> None:
    name = json.dumps("x\u202ey")
    found = evaluate(
        f'String(dom.html`<a class="b" href="${{{name}}}" title="Of ${{{name}}}">${{{name}}}</a> ${{[{name}]}}`)',
        f"String(dom.html`<pre>${{{json.dumps('a' + chr(10) + 'b')}}}</pre>`)",
        f"String(dom.html`<b>${{{json.dumps('of ' + chr(0x5D0) + '-' + chr(0x5D1) + ' 3')}}}</b>`)",
        f"String(dom.html`<text>${{{json.dumps(chr(0x5D0))}}}</text>`)",
    )
    assert found == [
        '<a class="b" href="x\u202ey" title="Of x\\u202ey">x\\u202ey</a> x\\u202ey',
        "<pre>a\nb</pre>",
        "<b>of <bdi>\u05d0-\u05d1</bdi> 3</b>",
        "<text>\u05d0</text>",
    ]


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


def test_area_without_height_does_not_hide_the_one_below() -> None:
    """A service whose jobs all failed had a green line: that of *done* lay on that of *not done*."""
    lines = "[{color: 'failed', values: [0, 0, 2, 2]}, {color: 'done', values: [0, 0, 0, 0]}]"
    [drawn] = evaluate(f"String(charts.chart('x', {lines}, {{isStacked: true}}))")
    failed, done = re.findall(r'"c-(?:failed|done)">.*?<path d="([^"]*)"', drawn, re.DOTALL)
    assert failed.startswith("M33.33 100L66.67 "), "it is not drawn where no job failed"
    assert done == "M0 100L33.33 100", "it is drawn where nothing ended"


def test_dialog_names_only_jobs_that_are_there() -> None:
    """It said "the others end as lost" where there were no others."""
    expected = {
        "verbs.fate(1, 1, 1)": "It has attempts left and is tried again.",
        "verbs.fate(2, 2, 2)": "All have attempts left and are tried again.",
        "verbs.fate(1, 1, 0)": "It has no attempts left and ends as lost.",
        "verbs.fate(3, 3, 0)": "None has attempts left: they end as lost.",
        "verbs.fate(3, 3, 1)": "1 has attempts left and is tried again, 2 end as lost.",
        "verbs.fate(30, 20, 7)": "7 of the first 20 have attempts left: such jobs are tried again, others end as lost.",
    }
    assert dict(zip(expected, evaluate(*expected), strict=True)) == expected


def test_names_that_are_folders_of_an_address_have_no_page() -> None:
    """A browser made `/` of `/service/..`, also if the points were escaped."""
    expected = {
        "routes.hrefOf('service', '..')": "/services?text=..",
        "routes.hrefOf('service', '.')": "/services?text=.",
        "routes.hrefOf('service', '...')": "/service/...",
        "routes.hrefOf('service', 'a/b')": "/service/a%2Fb",
    }
    assert dict(zip(expected, evaluate(*expected), strict=True)) == expected
