"""The documentation is true: names in code, links, commands, options, settings and their defaults."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from itertools import product
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, get_type_hints

import click
import pytest

from access_tables import any_authentication, use_keys
from case_tables import check_every_row
from dragoman.cli import dragoman
from dragoman.core.broker import Broker
from dragoman.core.policy import Policy
from dragoman.dialects.catalogue import DIALECTS, Dialect
from dragoman.operations.schemas import DAY, JOB_TIMEOUT
from dragoman.sdk.address import read_value
from dragoman.sdk.default_url import DEFAULT_URL
from dragoman.sdk.targets import caller_target, worker_target
from dragoman.server.admission import AdmissionLimits
from dragoman.server.config import load
from dragoman.server.listener_security import security_options
from dragoman.server.runner import Runner
from dragoman.server.wiring import ListenerOptions, default_listeners, prepare
from dragoman.store.null import NullStore
from dragoman.testing.entropy import SeededEntropy

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "dragoman"
README = ROOT / "README.md"
JOURNEY = ROOT / "docs" / "journey.md"
DIALECTS_PAGE = ROOT / "docs" / "dialects" / "index.md"


def pages(folder: Path) -> Iterator[Path]:
    """Yield all pages below a folder. Hidden folders, such as environments and caches, are not entered."""
    for path in folder.iterdir():
        if path.name.startswith(".") or path.name in ("build", "node_modules"):
            continue
        if path.is_dir():
            yield from pages(path)
        elif path.suffix == ".md":
            yield path


PAGES = sorted(pages(ROOT))

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# `core/broker.py:Broker.submit`, or only the file.
CODE_NAME = re.compile(r"`((?:[\w.]+/)*\w+\.py)(?::([A-Za-z_][\w.]*))?`")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^()\s]+)\)")
PICTURE = re.compile(r"!\[[^\]]*\]\(([^()\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")  # one of the two is empty
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
SHELL = ("sh", "bash", "shell", "console")
PROGRAM = ("dragoman", ".venv/bin/dragoman")


def title(path: Path) -> str:
    return str(path.relative_to(ROOT))


def fences(path: Path, *languages: str) -> list[str]:
    return [body for language, body in FENCE.findall(path.read_text()) if language in languages]


def without_fences(path: Path) -> str:
    return FENCE.sub("", path.read_text())


# -------------------------------------------------------------------- names in code


def test_the_journey_names_functions() -> None:
    names = CODE_NAME.findall(JOURNEY.read_text())
    assert len([name for _, name in names if name]) > 20


def test_every_name_of_code_exists() -> None:
    def check(page: Path) -> None:
        missing = [
            f"{file}:{name}" for file, name in CODE_NAME.findall(page.read_text()) if not name_exists(page, file, name)
        ]
        assert missing == []

    check_every_row(check, [(page,) for page in PAGES])


def name_exists(page: Path, file: str, name: str) -> bool:
    if not (SOURCE / file).is_file():
        return not name and ((ROOT / file).is_file() or (page.parent / file).is_file() or "/" not in file)
    found: Any = importlib.import_module("dragoman." + file.removesuffix(".py").replace("/", "."))
    for part in name.split(".") if name else ():
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


OF_THE_CALL = "*(the call)*"


def chapters(page: Path) -> dict[str, str]:
    """The text of each chapter, by its heading."""
    parts = re.split(r"^## +(.+?) *$", page.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def reading_list() -> list[str]:
    listed = chapters(JOURNEY)["Files of this journey, in reading order"]
    return re.findall(r"^\d+\. `([^`]+)`", listed, re.MULTILINE)


def test_files_of_one_call_are_listed_once_and_exist() -> None:
    listed = reading_list()
    assert len(set(listed)) == len(listed) > 15
    assert [file for file in listed if not (SOURCE / file).is_file()] == []


def test_chapters_about_the_call_name_files_of_its_reading_list_and_no_others() -> None:
    """A file that is named where the call is told must be on the list, and one on the list has its place there."""
    told = "".join(text for heading, text in chapters(JOURNEY).items() if heading.endswith(OF_THE_CALL))
    named = {file for file, _ in CODE_NAME.findall(told)}
    assert named == set(reading_list())
    assert sum(heading.endswith(OF_THE_CALL) for heading in chapters(JOURNEY)) == 6


# -------------------------------------------------------------------- links


def test_every_relative_link_leads_somewhere() -> None:
    def check(page: Path) -> None:
        broken = [link for link in LINK.findall(without_fences(page)) if not leads_somewhere(page, link)]
        assert broken == []

    check_every_row(check, [(page,) for page in PAGES])


def leads_somewhere(page: Path, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return True
    file, _, anchor = link.partition("#")
    target = page.parent / file if file else page
    if not target.exists():
        return False
    return not anchor or anchor in anchors(target)


def anchors(page: Path) -> set[str]:
    """Headings as GitHub and most others name them: lower case, spaces to dashes, the rest of punctuation dropped."""
    headings = HEADING.findall(without_fences(page))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_picture_exists() -> None:
    def check(page: Path) -> None:
        shown = PICTURE.findall(without_fences(page))
        assert [file for pair in shown if not (page.parent / (file := "".join(pair))).is_file()] == []

    check_every_row(check, [(page,) for page in PAGES])
    assert len(PICTURE.findall((ROOT / "README.md").read_text())) >= 4


def test_pictures_load_quickly() -> None:
    sizes = {title(path): path.stat().st_size for path in (ROOT / "docs" / "pictures").iterdir()}
    assert {name: size for name, size in sizes.items() if size > 200_000} == {}


def test_every_page_is_on_the_map() -> None:
    def check(page: Path) -> None:
        index = ROOT / "docs" / "index.md"
        linked = {(index.parent / link.partition("#")[0]).resolve() for link in LINK.findall(index.read_text())}
        assert page == index or page.resolve() in linked

    check_every_row(check, [(page,) for page in sorted((ROOT / "docs").rglob("*.md"))])


# -------------------------------------------------------------------- commands


def simple_commands(script: str) -> Iterator[list[str]]:
    """The commands of a shell example: lines joined, comments dropped, pipes taken apart, redirections left out."""
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        is_redirected = False
        for token in lexer:
            if set(token) <= set("<>"):
                is_redirected = True
            elif set(token) <= set("|&;()"):
                yield words
                words = []
            elif is_redirected:
                is_redirected = False
            elif words or not re.fullmatch(r"[A-Z_]+=.*", token):  # a variable in front of the command
                words.append(token)
        yield words


def commands_of(script: str) -> Iterator[list[str]]:
    script = re.sub(r"\b[0-9a-f]{4}…", "3f" * 32, script)  # a key
    return (words for words in simple_commands(script) if words and words[0] in PROGRAM)


SCRIPTS = [(path, script) for path in PAGES for script in fences(path, *SHELL)]
COMMANDS = [(title(path), words[1:]) for path, script in SCRIPTS for words in commands_of(script)]


def test_the_readme_shows_how_to_work_and_how_to_call() -> None:
    shown = {words[1] for script in fences(README, *SHELL) for words in commands_of(script)}
    assert {"worker", "call"} <= shown


def test_every_command_shown_is_one_that_exists(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_keys(monkeypatch, tmp_path, "gpu-1")

    def check(page: str, arguments: list[str]) -> None:
        group = click.Context(dragoman, info_name="dragoman")
        try:
            name, command, rest = dragoman.resolve_command(group, list(arguments))
            assert command is not None
            context = command.make_context(name, rest, parent=group)
        except click.exceptions.Exit:  # --help and --version do all they do while arguments are read
            return
        check_urls(context)

    check_every_row(check, COMMANDS)


def check_urls(context: click.Context) -> None:
    """The addresses in an example can be read, too, by whoever will get them."""
    given = context.params
    if context.info_name == "worker":
        worker_target(without_credentials(given["url"] or DEFAULT_URL), given["services"])
    elif context.info_name == "call":
        caller_target(without_credentials(given["url"] or DEFAULT_URL), given["service"])
    elif context.info_name == "serve":
        broker = Broker(Policy(), SeededEntropy())
        line = Runner(broker, NullStore(), lambda: 0.0, lambda level, event, **fields: None, AdmissionLimits())
        for url in given["urls"]:
            prepare(url, broker, line, authentication=any_authentication(broker.principals))


def without_credentials(url: str) -> str:
    """The address without the keys and tokens of the example, which are not on this machine."""
    return re.sub(r"(?<=[?&])(?:key|server_key|token_file)=[^&]+&?", "", url).rstrip("?&")


def test_every_make_target_shown_exists() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = {words[1] for _, script in SCRIPTS for words in simple_commands(script) if words[:1] == ["make"]}
    assert {"run", "test"} <= shown <= targets


def test_every_python_example_can_be_parsed() -> None:
    def check(page: Path) -> None:
        for body in fences(page, "python"):
            ast.parse(body)

    check_every_row(check, [(page,) for page in PAGES])


# -------------------------------------------------------------------- options and settings


def rows(page: str) -> dict[tuple[str, str], list[str]]:
    """Every table row that begins with `name`, by the heading above its table (lower case) and that name."""
    found = {}
    heading = ""
    for line in (ROOT / "docs" / page).read_text().splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ").lower()
        match = re.match(r"\| *`(\w+)` *\|(.*)\|$", line)
        if match:
            found[heading, match[1]] = [cell.strip() for cell in match[2].split("|")]
    return found


def test_every_setting_stands_in_the_operators_page_with_its_default() -> None:
    documented = {
        name: cells[0].strip("`") for (above, name), cells in rows("operate.md").items() if above == "settings"
    }
    _, sourced = load({}, {}, None)
    assert set(documented) == {each.name for each in sourced}
    differing = {
        each.name: documented[each.name]
        for each in sourced
        if each.name not in ("listen", "data", "access", "cluster", "cluster_credentials", "broker_name")
        and read_value(type(each.value), documented[each.name]) != each.value
    }
    assert differing == {}


def test_every_option_stands_in_the_dialects_page_with_its_default() -> None:
    def check(dialect: str, side: str) -> None:
        row = DIALECTS[dialect]
        own = getattr(importlib.import_module(row.options), f"{side.title()}Options", None)
        kinds: list[type[Any]] = [own] if own is not None else []
        if side == "listener":
            kinds += [ListenerOptions, *security_options(row), resolve_name(row.limits)]
        documented = {
            name: cells[0].strip("`")
            for (above, name), cells in rows("http.md" if dialect == "http" else f"dialects/{dialect}.md").items()
            if above == f"options of a {side}"
        }
        fields = [(kind, each) for kind in kinds for each in dataclasses.fields(kind) if each.name != "frontend"]
        expected = {each.name for _, each in fields}
        if row.has_frontend and side != "worker":  # there it stands among the options of listeners and clients
            expected.add("frontend")
        assert set(documented) == expected
        differing = {}
        for kind, each in fields:
            if each.default in (None, ""):
                is_same = documented[each.name] in ("none", "not given")
            elif isinstance(each.default, Enum):
                is_same = documented[each.name] == each.default.value
            else:
                is_same = read_value(get_type_hints(kind)[each.name], documented[each.name]) == each.default
            if not is_same:
                differing[each.name] = (documented[each.name], each.default)
        assert differing == {}

    check_every_row(check, product(DIALECTS, ("listener", "worker", "client")))


def dialect_table() -> dict[str, list[str]]:
    """The table of dialects: the cells of each row by its title, without the title."""
    found = re.search(r"^\| dialect \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", DIALECTS_PAGE.read_text(), re.MULTILINE)
    assert found is not None
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()]
    return {title: cells for title, *cells in lines}


def test_every_dialect_stands_in_the_table_of_dialects() -> None:
    assert list(dialect_table()) == [row.title for row in DIALECTS.values()]


def test_the_table_of_dialects_says_what_the_rows_say() -> None:
    def check(row: Dialect) -> None:
        transports, ports, _, callers, workers, editions, page = dialect_table()[row.title]
        assert transports.startswith(row.carrier)
        assert ("TCP" in transports, "Unix sockets" in transports, "`ipc`" in transports) == (
            bool({"tcp", "http"} & {*row.transports}),
            bool({"unix", "ipc"} & {*row.transports}),
            "ipc" in row.transports,
        )
        assert [int(port) for port in re.findall(r"\d+", ports)] == [
            port for port in (row.port, row.frontend_port) if port is not None
        ]
        assert callers.startswith("yes") == row.has_callers
        assert "frontend" in callers if row.has_frontend else "frontend" not in callers
        assert workers.startswith("yes")
        assert re.findall(r"`([^`]+)`", editions) == [*row.editions]
        assert f"({'../http.md' if row.name == 'http' else f'{row.name}.md'})" in page

    check_every_row(check, [(row,) for row in DIALECTS.values()])


def test_the_readme_names_every_dialect() -> None:
    named = re.search(r"^- Six \[dialects\].*?: (.*?)\. ", README.read_text(), re.MULTILINE)
    assert named is not None
    assert named[1].split(", ") == [row.title for row in DIALECTS.values() if row.name != "http"]


def test_every_default_port_stands_where_serve_is_explained() -> None:
    ports = {str(port) for row in DIALECTS.values() for port in (row.port, row.frontend_port) if port is not None}
    page = ROOT / "docs" / "cli.md"
    (explained,) = [line for line in page.read_text().splitlines() if line.startswith("| `serve [URL]")]
    assert set(re.findall(r"\d{4}", explained)) == ports
    assert set(re.findall(r"\d{4}", " ".join(default_listeners({})))) == ports


def test_every_rule_that_code_and_tests_cite_is_explained_once() -> None:
    """A comment that says (R36) promises that docs/rules.md has an R36."""
    explained = re.findall(r"^\| *([DRILT]\d+) *\|", (ROOT / "docs" / "rules.md").read_text(), re.MULTILINE)
    files = [*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    cited = {rule for path in files for rule in re.findall(r"\b[DRILT]\d{1,3}\b", path.read_text())}
    assert sorted(cited - set(explained)) == []
    assert [rule for rule, rows in Counter(explained).items() if rows > 1] == []


# -------------------------------------------------------------------- promises

PROOF = re.compile(r"\[`(\w+)`\]\((\S+?\.py)\)")


@pytest.mark.parametrize(("name", "heading", "least"), [("guarantees.md", "", 30), ("security.md", "## Threats", 9)])
def test_every_promise_names_tests_that_exist(name: str, heading: str, least: int) -> None:
    page = ROOT / "docs" / name
    text = page.read_text().partition(heading)[2] if heading else page.read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and "proved by" not in line]
    assert len(rows) >= least
    assert [row for row in rows if not PROOF.search(row)] == []
    missing = [
        f"{file}: {name}"
        for name, file in PROOF.findall(text)
        if not re.search(rf"^(async )?def {name}\(", (page.parent / file).read_text(), re.MULTILINE)
    ]
    assert missing == []


def test_the_default_and_the_maximum_of_a_background_job_s_timeout_are_told_where_it_can_be_set() -> None:
    """The maximum was nowhere."""
    rows = [
        row
        for page in ("http.md", "python.md")
        for row in (ROOT / "docs" / page).read_text().splitlines()
        if row.startswith("| `timeout` |") and "one attempt" in row
    ]
    context = click.Context(dragoman)
    enqueue, cron = (dragoman.get_command(context, name) for name in ("enqueue", "schedule"))
    assert enqueue is not None
    assert isinstance(cron, click.Group)
    helps = [
        option.help or ""
        for command in (enqueue, cron.commands["set"])
        for option in command.params
        if isinstance(option, click.Option) and option.name == "timeout"
    ]
    assert (len(rows), len(helps)) == (2, 2)
    for text in (*rows, *helps):
        assert f"{DAY:g}" in text
        assert f"{JOB_TIMEOUT:g}" in text.replace(f"{DAY:g}", "")
