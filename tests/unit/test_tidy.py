"""Rules that a machine can check: allowed imports, what pure modules must not use, where states change.

A rule here is one sentence of CONTRIBUTING.md. Each check looks at the syntax tree of every module under src/dragoman
and gives a list of offences, one line each, so that a failure says where to look.
"""

from __future__ import annotations

import ast
import io
import itertools
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "dragoman"
sys.path.insert(0, str(SOURCE.parents[1]))

from dragoman.core import model  # noqa: E402
from dragoman.core.queues import Queued  # noqa: E402
from dragoman.core.rare_facts import RareFacts  # noqa: E402
from hatch_build import modules_of as compiled_modules  # noqa: E402

MODULES = sorted(SOURCE.rglob("*.py"))
ROOT = SOURCE.parents[1]
OTHER_FOLDERS = ("tests", "fuzz", "bench", "tools", "examples")
BUILD = ROOT / "bench" / "build"  # `make bench` installs other systems there
OTHER_PROGRAMS = [
    path for folder in OTHER_FOLDERS for path in (ROOT / folder).rglob("*.py") if not path.is_relative_to(BUILD)
]
QUESTION = re.compile(r"(What|Who|Whoever|Whom|Whose|Why|How|Where|When|Whether|Which)\b")
REPLACED = re.compile(r"(?i)\b(diary|desk|guests?|peoples|nursery|childhood|crew|roster|ledger|stranded|unproven)\b")

IMPURE_MODULES = {"time", "random", "logging", "asyncio", "socket", "os"}

CONTRIBUTING = SOURCE.parents[1] / "CONTRIBUTING.md"
CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Folder:
    """A row of CONTRIBUTING.md's table of folders."""

    path: str
    holds: str
    imports: str

    @property
    def name(self) -> str:
        """The package's: `core`, or `powerhose` for a module of its own; empty outside of the source."""
        return self.path.removeprefix("src/dragoman/").removesuffix(".py") if self.is_source else ""

    @property
    def is_source(self) -> bool:
        return self.path.startswith("src/dragoman/")

    @property
    def is_free(self) -> bool:
        return self.imports == "anything"

    def may_import(self, module: str) -> bool:
        """True if `dialects.native.codec` is allowed here, itself or all that is below `dialects`."""
        if self.is_free or is_under(module, self.name):
            return True
        parts = module.split(".")
        above = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
        return any(fnmatchcase(each, pattern) for each in above for pattern in self._patterns())

    def _patterns(self) -> list[str]:
        """`dialects/*/peer.py` is `dialects.*.peer`."""
        return [each.removesuffix(".py").replace("/", ".") for each in CODE.findall(self.imports)]


def folders_in(text: str) -> list[Folder]:
    """The rows of the table whose first head is *folder* and whose last is about imports."""
    rows = [[cell.strip() for cell in line.strip("| \n").split("|")] for line in text.splitlines() if line[:1] == "|"]
    start = next(index for index, row in enumerate(rows) if row[0] == "folder" and row[-1].startswith("may import"))
    table = itertools.takewhile(lambda row: CODE.fullmatch(row[0]), rows[start + 2 :])
    return [Folder(row[0].strip("`"), row[1], row[2] if row[2:] else "") for row in table]


FOLDERS = folders_in(CONTRIBUTING.read_text())
PACKAGES = {each.name: each for each in FOLDERS if each.is_source}
PURE = tuple(name for name, each in PACKAGES.items() if each.holds.endswith(" Pure"))

FORBIDDEN_NAMES = {"pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal", "yaml", "eval", "recv_pyobj"}
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "manager"}

# Objects of the core, by the end of the name that a variable or an attribute has.
FIELDS = {
    "job": (*model.Job.__slots__, *Queued.__slots__, *RareFacts.__slots__),
    "worker": model.Worker.__slots__,
    "attempt": model.Attempt.__slots__,
}
FIELDS |= dict.fromkeys(("caller", "call", "client", "peer"), model.Caller.__slots__)


def name_of(path: Path) -> str:
    """`core/broker.py` is `core.broker`; a package is its `__init__`'s folder."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree_of(path)))


def definitions_in(node: ast.AST) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """The module, its classes and its functions. Only statements contain them, and most nodes are expressions."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from definitions_in(child)


def modules_of(*packages: str) -> list[Path]:
    return [path for path in MODULES if name_of(path).split(".")[0] in packages]


@cache
def imports_of(path: Path) -> list[tuple[int, str]]:
    return list(_imports_of(path))


def _imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Every module that a module imports, with its line. `from dragoman.server import clock` is dragoman.server.clock
    if there is such a module; imports for type checkers and within functions count like all others."""
    package = ("dragoman." + name_of(path)).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, each.name) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((node.lineno, _submodule(module, each.name)) for each in node.names)


def _submodule(module: str, name: str) -> str:
    if module.split(".")[0] == "dragoman":
        inner = SOURCE.joinpath(*module.split(".")[1:], name)
        if inner.with_suffix(".py").exists() or (inner / "__init__.py").exists():
            return f"{module}.{name}"
    return module


def ours_of(path: Path) -> Iterator[tuple[int, str]]:
    for line, module in imports_of(path):
        if module == "dragoman" or module.startswith("dragoman."):
            yield line, module.removeprefix("dragoman").removeprefix(".") or "__init__"


def is_under(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(prefix + ".")


def dialect_of(module: str) -> str | None:
    """`pingpong` for `dialects.pingpong.codec`; none for the seam, which all dialects share."""
    parts = module.split(".")
    is_package = len(parts) > 1 and parts[0] == "dialects" and (SOURCE / "dialects" / parts[1]).is_dir()
    return parts[1] if is_package else None


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(SOURCE)}:{line}"


def test_every_folder_is_in_the_table() -> None:
    found = {name_of(path).split(".")[0] for path in MODULES}
    assert set(PACKAGES) == found, "a package came or went: say in CONTRIBUTING.md what it holds and may import"
    assert [each.path for each in FOLDERS if not (SOURCE.parents[1] / each.path).exists()] == []
    assert [each.path for each in FOLDERS if not each.holds] == []
    assert [
        each.path
        for each in PACKAGES.values()
        if each.imports not in ("nothing", "anything") and "`" not in each.imports
    ] == []
    assert PURE == ("core", "carriers", "dialects", "cluster")


def test_every_allowed_import_is_used() -> None:
    """A rule without a use allows what nobody has checked."""
    unused = []
    for folder in PACKAGES.values():
        used = {module for path in modules_of(folder.name) for _, module in ours_of(path)}
        for allowed in CODE.findall(folder.imports):
            narrow = Folder(folder.path, folder.holds, f"`{allowed}`")
            if not any(narrow.may_import(module) and not is_under(module, folder.name) for module in used):
                unused.append(f"{folder.path} imports nothing of {allowed}")
    assert unused == []


def test_the_table_is_read_as_it_is_written() -> None:
    table = """
| folder | needs |
|---|---|
| `tests/unit` | nothing |

| folder | holds | may import, besides itself |
|---|---|---|
| `src/dragoman/core` | jobs. Pure | nothing |
| `src/dragoman/sdk` | clients | `streams`, `dialects/sides.py`, `dialects/*/peer.py` |
| `src/dragoman/powerhose.py` | a broker | anything |
| `bench` | measurements | |

| folder | of another table |
"""
    core, sdk, powerhose, bench = folders_in(table)
    assert [each.name for each in (core, sdk, powerhose, bench)] == ["core", "sdk", "powerhose", ""]
    assert (core.may_import("core.model"), core.may_import("corex"), core.may_import("sdk")) == (True, False, False)
    assert all(map(sdk.may_import, ("sdk.client", "streams.dial", "dialects.sides", "dialects.native.peer")))
    assert not any(
        map(sdk.may_import, ("dialects", "dialects.interface", "dialects.native.broker_side", "server.connection"))
    )
    assert powerhose.may_import("server.runner")


def test_constants_of_compiled_modules_are_final() -> None:
    """Compiled code looks any other name up in a dictionary, each time. `inf` of math is such a name."""
    offences = []
    for path in sorted(SOURCE.parent / each for each in compiled_modules(SOURCE)):
        for node in tree_of(path).body:
            if isinstance(node, ast.Assign):
                names = [each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)]
            elif isinstance(node, ast.AnnAssign) and "Final" not in ast.unparse(node.annotation):
                names = [ast.unparse(node.target)]
            else:
                continue
            offences += [
                f"{where(path, node.lineno)} {name} is not Final" for name in names if name.isupper() and name[1:]
            ]
        offences += [f"{where(path, line)} imports inf" for line, name in names_from_math(path) if name == "inf"]
    assert offences == []


def names_from_math(path: Path) -> Iterator[tuple[int, str]]:
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and node.module == "math" and path.stem != "infinity":
            yield from ((node.lineno, each.name) for each in node.names)


def test_imports_have_no_cycle() -> None:
    """Imports for type checkers only, and within functions, count like all others."""
    graph = {name_of(path): {module for _, module in ours_of(path)} for path in MODULES}
    assert cycle_in(graph) == ""


@pytest.mark.parametrize(
    ("graph", "cycle"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, ""),
        ({"a": {"b"}, "b": {"a"}}, "a imports b imports a"),
        ({"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": {"b"}}, "b imports c imports d imports b"),
        ({"a": {"a"}}, "a imports a"),
    ],
)
def test_a_cycle_is_named(graph: dict[str, set[str]], cycle: str) -> None:
    assert cycle_in(graph) == cycle


def cycle_in(graph: Mapping[str, set[str]]) -> str:
    """One cycle of imports, from its first module in the alphabet back to it; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1][:0:-1]
        start = cycle.index(min(cycle))
        return " imports ".join([*cycle[start:], *cycle[: start + 1]])
    return ""


def test_imports_point_one_way() -> None:
    offences = [
        f"{where(path, line)} imports {module}"
        for folder in PACKAGES.values()
        for path in modules_of(folder.name)
        for line, module in ours_of(path)
        if not folder.may_import(module)
    ]
    assert offences == []


def test_a_dialect_never_imports_another() -> None:
    offences = []
    for path in modules_of("dialects"):
        own = dialect_of(name_of(path))
        for line, module in ours_of(path):
            if dialect_of(module) not in (None, own):
                offences.append(f"{where(path, line)} imports {module}")
    assert offences == []


def test_the_core_needs_the_standard_library_only() -> None:
    offences = []
    for path in modules_of("core"):
        for line, module in imports_of(path):
            if module.split(".")[0] not in {*sys.stdlib_module_names, "dragoman", "mypy_extensions"}:
                offences.append(f"{where(path, line)} imports {module}")
    assert offences == []


def test_the_pure_parts_touch_no_clock_no_chance_no_log_and_no_socket() -> None:
    offences = []
    for path in modules_of(*PURE):
        for line, module in imports_of(path):
            if module.split(".")[0] in IMPURE_MODULES:
                offences.append(f"{where(path, line)} imports {module}")
    assert offences == []


def test_the_pure_parts_never_wait() -> None:
    waits = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    offences = [
        where(path, node.lineno) for path in modules_of(*PURE) for node in nodes_of(path) if isinstance(node, waits)
    ]
    assert offences == []


def test_the_pure_parts_never_iterate_over_a_set() -> None:
    """Its order differs from run to run, and a run could not be repeated. Only sets in plain sight are found."""
    offences = []
    for path in modules_of(*PURE):
        named = _names_of_sets(path)
        for node in nodes_of(path):
            if isinstance(node, ast.For | ast.comprehension) and _is_set(node.iter, named):
                offences.append(where(path, node.iter.lineno))
    assert offences == []


def _names_of_sets(path: Path) -> set[str]:
    found = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Assign) and _is_set(node.value, set()):
            found |= {ast.unparse(target) for target in node.targets}
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and _is_set(node.value, set()):
            found.add(ast.unparse(node.target))
    return found


def _is_set(node: ast.expr | None, named: set[str]) -> bool:
    if node is None:
        return False
    if isinstance(node, ast.Set | ast.SetComp) or ast.unparse(node) in named:
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
        return _is_set(node.left, named) or _is_set(node.right, named)
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("set", "frozenset")


def test_states_are_assigned_in_the_lifecycle_only() -> None:
    offences = []
    for path in MODULES:
        if name_of(path) == "core.lifecycle":
            continue
        for function, node in _assignments_to_state(tree_of(path)):
            if (name_of(path), function) != ("core.model", "__init__"):
                offences.append(where(path, node.lineno))
    assert offences == []


def _assignments_to_state(node: ast.AST, function: str = "") -> Iterator[tuple[str, ast.stmt]]:
    for child in ast.iter_child_nodes(node):
        inside = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if isinstance(child, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            names = [each for target in targets for each in ast.walk(target)]
            if any(
                isinstance(each, ast.Attribute) and each.attr == "state" and isinstance(each.ctx, ast.Store)
                for each in names
            ):
                yield inside, child
        yield from _assignments_to_state(child, inside)


def test_fields_of_jobs_workers_and_attempts_are_assigned_in_the_core_only() -> None:
    """Found by name: `job`, `the_job`, `attempt.job`. Packages that may not import the core have jobs of their own."""
    packages = [name for name, folder in PACKAGES.items() if name != "core" and folder.may_import("core")]
    offences = [
        f"{where(path, line)} assigns {field}"
        for path in modules_of(*packages)
        for line, field in _assignments_to_fields(nodes_of(path))
    ]
    assert offences == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("attempt.due = 1.0", ["attempt.due"]),
        ("self.attempt.worker.seen += gap", ["self.attempt.worker.seen"]),
        ("last_job.deadline, other = 1.0, 2.0", ["last_job.deadline"]),
        ("job.key: str = 'k'", ["job.key"]),
        ("for job.spent in range(3): del worker.remote", ["job.spent", "worker.remote"]),
        ("post.due = job.deadline; job.crew = 1; worker.running[token] = attempt; guest.worker = worker", []),
    ],
)
def test_assignments_to_fields_are_found(source: str, found: list[str]) -> None:
    assert [field for _, field in _assignments_to_fields(ast.walk(ast.parse(source)))] == found


def _assignments_to_fields(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Every field of a job, a worker or an attempt that is assigned or deleted, with its line."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            owner = ast.unparse(node.value).lower()
            if any(owner.endswith(name) and node.attr in fields for name, fields in FIELDS.items()):
                yield node.lineno, ast.unparse(node)


def test_resumable_attempts_are_reached_by_methods_only() -> None:
    offences = [
        where(path, node.lineno)
        for path in MODULES
        if name_of(path).split(".")[0] != "core"
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute) and node.attr == "resumable"
    ]
    assert offences == []


def test_nothing_that_can_run_a_payload_is_named() -> None:
    """Payloads are opaque bytes: never unpickled, never evaluated, but where somebody asks for it by name."""
    offences = []
    for path in MODULES:
        if name_of(path) == "sdk.codecs":
            continue
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            if token.type == tokenize.NAME and token.string in FORBIDDEN_NAMES:
                offences.append(f"{where(path, token.start[0])} names {token.string}")
    assert offences == []


def test_pipes_between_processes_carry_bytes_only() -> None:
    """`Connection.send` and `recv` pickle; `send_bytes` and `recv_bytes` do not."""
    offences = []
    for path in MODULES:
        if not any(module.split(".")[0] == "multiprocessing" for _, module in imports_of(path)):
            continue
        for node in nodes_of(path):
            if isinstance(node, ast.Attribute) and node.attr in ("send", "recv"):
                offences.append(f"{where(path, node.lineno)} uses .{node.attr}")
            if isinstance(node, ast.Attribute) and node.attr in ("Queue", "SimpleQueue", "Manager", "Pool"):
                offences.append(f"{where(path, node.lineno)} uses {node.attr}, which pickles")
    assert offences == []


def test_a_module_says_what_it_is_for() -> None:
    docstrings = {path: ast.get_docstring(tree_of(path)) or "" for path in MODULES}
    assert [where(path, 1) for path, text in docstrings.items() if not text.partition("\n")[0].strip()] == []


def test_a_docstring_opens_with_a_noun_or_a_verb() -> None:
    """Not with a question word: a reader looks for the thing, not for a riddle."""
    offences = []
    for path in [*MODULES, *OTHER_PROGRAMS]:
        for node in definitions_in(tree_of(path) if path in MODULES else ast.parse(path.read_text())):
            text = ast.get_docstring(node) or ""
            if QUESTION.match(text):
                offences.append(f"{path.name} {getattr(node, 'name', '')}: {text.partition(chr(10))[0]}")
    assert offences == []


def test_replaced_names_do_not_come_back() -> None:
    offences = [
        f"{where(path, number)} {found[0]}"
        for path in MODULES
        if path.stem not in ("older_names", "file_names")  # they are about the older names
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (found := REPLACED.search(line)) is not None
    ]
    assert offences == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    parts = {part for path in MODULES for part in name_of(path).split(".")}
    assert parts & VAGUE_NAMES == set()
