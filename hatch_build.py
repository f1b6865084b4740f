"""Compiles the hot path with mypyc while a wheel is built, where that is possible; without it all works, but slower.

A wheel is pure if DRAGOMAN_PURE=1 says so, if there is no C compiler or no Python.h, or if compiling fails: the build
then says why in one line, and succeeds. With DRAGOMAN_PURE=never it fails instead. An editable install is
always interpreted. Nothing is ever written into src/, where a compiled module would go on hiding the source beside it:
compiling happens in a copy.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# What a job passes through: from bytes to verbs and back. All of it or nothing, for compiled code is quick with
# compiled classes only. Whoever adds a dialect has it compiled.
COMPILED = (
    "core/*.py",
    "carriers/*.py",
    "cluster/*.py",
    "operations/json_api.py",
    "operations/batches.py",
    "operations/error_kinds.py",
    "operations/group_handlers.py",
    "operations/bulk_acts.py",
    "operations/bulk_handlers.py",
    "operations/job_acts.py",
    "operations/handler_base.py",
    "operations/handlers.py",
    "operations/dashboard_handlers.py",
    "operations/enqueue_handlers.py",
    "operations/key_handlers.py",
    "operations/retry_handlers.py",
    "operations/schedule_handlers.py",
    "operations/limit_handlers.py",
    "operations/list_handlers.py",
    "operations/job_options.py",
    "operations/ladder_handlers.py",
    "operations/recorded_requests.py",
    "operations/repeated_requests.py",
    "operations/responders.py",
    "operations/payloads.py",
    "operations/views.py",
    "dialects/*.py",
    "dialects/*/*.py",
    "store/counter.py",
    "store/commit.py",
    "store/large_payloads.py",
    "store/log_room.py",
    "store/null.py",
    "store/presence.py",
    "store/rows.py",
    "store/sqlite.py",
    "store/checksums.py",
    "store/statements.py",
    "store/writer.py",
    "server/admission.py",
    "server/memory_budget.py",
    "server/clock.py",
    "server/connection_registry.py",
    "server/connections.py",
    "server/event_publisher.py",
    "server/failed_effects.py",
    "server/heartbeats.py",
    "server/host_access.py",
    "server/identification.py",
    "server/side_calls.py",
    "server/connection.py",
    "server/connection_limits.py",
    "server/rate_limit.py",
    "server/reports.py",
    "server/runner.py",
    "server/store_access.py",
    "streams/byte_stream.py",
    "streams/second_look.py",
    "streams/stream.py",
    "streams/tls.py",
    "streams/turn.py",
)

# Of these, what stays as it is.
INTERPRETED = (
    "**/__init__.py",  # nothing but a docstring
    "cluster/records.py",  # structs of msgspec
    "cluster/gossip.py",  # the same
    "cluster/log_records.py",  # the same
    "cluster/shard_rows.py",  # the same
    "core/errors.py",  # inherits AssertionError, which mypyc cannot
    "dialects/catalogue.py",  # a table that is read when a broker or a client starts
    "dialects/option_fields.py",  # fields of dataclasses, under the types of their values
    "dialects/*/options.py",  # dataclasses whose fields have metadata
    "dialects/controller/editions.py",  # a generic dataclass with slots
    "dialects/majordomo/multiframe.py",  # inherits bytes
)

REQUIREMENTS = ["mypy>=2.4,<3", "setuptools>=77"]
BYTECODE = shutil.ignore_patterns("__pycache__")  # other processes may be writing it
REASON = "interpreted.txt"  # in the package: why it is
NEVER = "never"  # the value of DRAGOMAN_PURE with which a build that cannot compile fails
LIBRARY = "dragoman"  # the file that all modules share is called so, and __mypyc; it lies beside the package


def modules_of(package: Path) -> list[Path]:
    """The files to compile, relative to the folder the package is in."""
    left_out = {path for pattern in INTERPRETED for path in package.glob(pattern)}
    chosen = {path for pattern in COMPILED for path in package.glob(pattern)}
    return sorted(path.relative_to(package.parent) for path in chosen - left_out)


def obstacle() -> str | None:
    """Why nothing can be compiled here, or shall not be."""
    setting = os.environ.get("DRAGOMAN_PURE", "")
    if setting == "later":
        return "'make install' compiles it"
    if setting not in ("", "0", NEVER):
        return "DRAGOMAN_PURE is set"
    if sys.implementation.name != "cpython":
        return f"mypyc compiles for CPython, and this is {sys.implementation.name}"
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler})"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "there is no Python.h (on Debian and Ubuntu: apt-get install python3-dev)"
    return None


class CompileHotPath(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        return REQUIREMENTS if self.target_name == "wheel" and obstacle() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory(prefix="dragoman-build-")
        folder = Path(self._folder.name)
        problem = obstacle() or self._compile(folder, build_data)
        if problem is not None and os.environ.get("DRAGOMAN_PURE") == NEVER:
            self._folder.cleanup()
            self.app.abort(f"dragoman cannot be compiled, and DRAGOMAN_PURE={NEVER} forbids a pure wheel: {problem}")
        if problem is not None:
            self.app.display_warning(f"dragoman is not compiled, it will be interpreted: {problem}")
            (folder / REASON).write_text(problem)  # installers rarely show what was said: `dragoman --version` does
            build_data["force_include"][str(folder / REASON)] = f"dragoman/{REASON}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_folder"):
            self._folder.cleanup()

    def _compile(self, folder: Path, build_data: dict[str, Any]) -> str | None:
        """Add what can be compiled to the wheel; or else say why it cannot."""
        shutil.copytree(Path(self.root, "src", "dragoman"), folder / "dragoman", ignore=BYTECODE)
        # A process of its own: mypyc ends its process when it does not like what it reads.
        done = subprocess.run(  # noqa: S603
            [sys.executable, __file__, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.app.display_debug(done.stdout)
        built = [*folder.glob("*.so"), *folder.glob("dragoman/**/*.so")]
        if done.returncode or not built:
            complaints = [line for line in done.stdout.splitlines() if "error" in line]
            return f"compiling failed: {complaints[0] if complaints else done.stdout[-200:]}"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"] |= {str(path): str(path.relative_to(folder)) for path in built}
        return None


def generate(folder: Path) -> list[Any]:
    """Translate the package in this folder to C, below `build`. Returns what is to be compiled."""
    os.chdir(folder)
    import setuptools  # noqa: F401

    from mypyc.build import mypycify  # isort: skip  # it asks whether setuptools was imported before

    modules = [str(path) for path in modules_of(Path("dragoman").absolute())]
    # What types our dependencies have is none of its business: where a wheel is built they may be there or not, and
    # what imports them is not compiled.
    flags = ["--config-file=", "--ignore-missing-imports", "--no-site-packages", "--follow-imports=silent"]
    flags += ["--no-warn-no-return"]
    return mypycify([*flags, *modules], opt_level="2", debug_level="0", multi_file=True, group_name=LIBRARY)


def compile_in(folder: Path) -> None:
    """Compile the package in this folder, each library beside its source."""
    extensions = generate(folder)
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    for extension in extensions:
        extension.extra_compile_args.append("-Wno-error")  # a newer compiler may find something new to say
    command = build_ext(Distribution({"ext_modules": extensions}))
    command.inplace = True
    command.parallel = os.cpu_count()
    command.ensure_finalized()
    plain = command.build_extensions

    def build_extensions() -> None:
        _use_all_cores(command.compiler)
        plain()

    command.build_extensions = build_extensions
    command.run()


def _use_all_cores(compiler: Any) -> None:
    """Let the compiler run once for each core: by itself it takes one file of a library after the other."""
    compile_some = compiler.compile
    translated: dict[str, list[str]] = {}
    lock = Lock()

    def compile_all(sources: Iterable[str], **options: Any) -> list[str]:
        def compile_one(source: str) -> Any:
            header = _shared_header(Path(source))
            with lock:  # the first file translates its header, the others wait for it
                if header not in translated:
                    translated[header] = _translate_header(compiler, header, **options) if header else []
            return compile_some([source], **options | {"extra_preargs": translated[header]})

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return [each for some in pool.map(compile_one, sources) for each in some]

    compiler.compile = compile_all


def _shared_header(source: Path) -> str:
    """Return the header that is the greater part of this file and of many others. Empty: there is none."""
    if source.name.startswith("__native_"):
        return f"__native_internal_{LIBRARY}.h"
    is_shim = source.parent != Path("build")  # a module's own small file, which loads the module from the library
    return "Python.h" if is_shim else ""


def _translate_header(
    compiler: Any, name: str, include_dirs: Iterable[str] = (), extra_postargs: Iterable[str] = (), **others: Any
) -> list[str]:
    """Translate a header once for all files that share it.

    Returns the options that use the translation. A compiler that cannot use it reads the header itself.
    """
    if compiler.compiler_type != "unix":
        return []
    header = Path("build", f"shared_{name}")
    header.write_text(f"#include <{name}>\n")
    folders = [f"-I{folder}" for folder in (*include_dirs, *compiler.include_dirs)]
    words = [*compiler.compiler_so, *folders, *extra_postargs, "-x", "c-header", str(header), "-o", f"{header}.gch"]
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
    return ["-include", str(header)] if done.returncode == 0 else []


if __name__ == "__main__":
    compile_in(Path(sys.argv[1]))
