"""MkDocs hook: adds the repository files that pages of docs/ link to, and adjusts the links.

Pages are written for readers of the repository: `../examples/README.md` and `docs/python.md` are links that work there.
In the site, files outside of docs/ are placed under repository/: Markdown as pages, everything else as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from os.path import normpath, relpath
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = "repository/"
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md", "examples/process_pool/README.md")

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<before>\]\(|(?:src|srcset|href)=\")(?P<target>[^()\s\"#:]+)(?P<after>[)#\"])")


def site_path(path: str) -> str:
    """Return the path of a file in the site, from its path in the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return OUTSIDE + (path if path.endswith(".md") else f"{path}.txt")


def repository_path(place: str) -> str:
    """Return the path of a page in the repository, from its path in the site."""
    return place.removeprefix(OUTSIDE) if place.startswith(OUTSIDE) else f"docs/{place}"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside of docs/, and all files that any page links to."""
    inside = [repository_path(file.src_uri) for file in files.documentation_pages()]
    wanted = set(PAGES).union(*(linked_files(page) for page in (*inside, *PAGES)))
    for path in sorted(wanted):
        if not path.startswith("docs/"):
            files.append(File.generated(config, site_path(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the page's links to paths in the site."""
    path = repository_path(page.file.src_uri)
    here = PurePosixPath(page.file.src_uri).parent

    def replaced(found: re.Match[str]) -> str:
        target = found["target"]
        place = site_path(normpath(PurePosixPath(path).parent / target))
        return f"{found['before']}{relpath(place, here)}{found['after']}"

    return "".join(text if is_code else LINK.sub(replaced, text) for is_code, text in parts(markdown))


def linked_files(path: str) -> Iterator[str]:
    """Return the repository paths of the files that a page links to."""
    for is_code, text in parts((ROOT / path).read_text()):
        for found in () if is_code else LINK.finditer(text):
            target = normpath(PurePosixPath(path).parent / found["target"])
            if (ROOT / target).is_file():
                yield target


def parts(markdown: str) -> Iterator[tuple[bool, str]]:
    """Split the text into pieces, in order; the flag says whether a piece is a fenced code block."""
    end = 0
    for fence in FENCE.finditer(markdown):
        yield False, markdown[end : fence.start()]
        yield True, fence[0]
        end = fence.end()
    yield False, markdown[end:]
