"""The documentation as a site, built as `make docs` does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dragoman

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

# References that a browser follows by itself when it shows a page. Links for the reader are not among them.
FETCHED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*?\bsrc(?:set)?=\"?([^\s\">]+)|<link\b[^>]*?\bhref=\"?([^\s\">]+)"
)


@pytest.mark.timeout(240)
def test_the_site_is_built_without_a_warning_and_needs_no_network(tmp_path: Path) -> None:
    """A link or an anchor that leads nowhere, and a page outside of the navigation, are warnings."""
    site = tmp_path / "site"
    words = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(site)]
    built = subprocess.run(
        words,
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "https_proxy": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (built.returncode, built.stdout + built.stderr) == (0, "")

    pages = {path.relative_to(site).as_posix(): path.read_text() for path in site.rglob("*.html")}
    expected = {path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.rglob("*.md")}
    assert sorted(expected - set(pages)) == []

    foreign = {
        address
        for text in pages.values()
        for found in FETCHED.finditer(text)
        if re.match(r"(\w+:)?//", address := found[1] or found[2])
    }
    assert foreign == set()
    assert [path.name for path in site.rglob("*.css") if re.search(r"url\(['\"]?(https?:)?//", path.read_text())] == []

    spilt = re.compile(r"<p>(?:(?!</p>).)*?^(?:- |\d+\. |\|).*?$", re.MULTILINE | re.DOTALL)
    assert {name: found[0] for name, text in pages.items() if (found := spilt.search(text))} == {}, "a list or a table"

    indexed = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    texts = {each["location"]: each["title"] + each["text"] for each in indexed}
    assert "a flag of the job" in texts["glossary.html#jobs"].lower()
    assert any(place.startswith("repository/CONTRIBUTING.html") for place in texts)
    assert (site / "search" / "search_index.js").read_text().startswith("var __index = ")  # for pages from a folder

    described = set(re.findall(r'id="?dragoman\.(\w+)[" ]', pages["reference/python-api.html"]))
    assert set(dragoman.__all__) - described == set()
