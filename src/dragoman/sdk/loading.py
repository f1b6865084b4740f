"""Loads handlers by reference: parses `MODULE:OBJECT`, and lets a child process import the objects of its parent."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

from dragoman.sdk.errors import DragomanError
from dragoman.sdk.handlers import MAIN

_loads = 0  # number of nested `loading` blocks
_scripts: dict[str, ModuleType] = {}  # scripts that were run, by path


class HandlerLoadError(DragomanError):
    """A handler cannot be loaded, or a child process cannot be started."""


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """Reference to an object by module and name. The main script is identified by its file."""

    module: str
    name: str  # empty: the module itself
    script: str = ""
    package: str = ""  # package of a script that was started by `python -m`

    def __str__(self) -> str:
        return f"{self.script or self.module}:{self.name}".removesuffix(":")


@contextmanager
def loading() -> Iterator[None]:
    """Make `Worker.run` return at once while a module is loaded, because scripts may call it without a main guard."""
    global _loads
    _loads += 1
    try:
        yield
    finally:
        _loads -= 1


def is_loading() -> bool:
    return _loads > 0


def parse_reference(target: str) -> ObjectReference:
    """Parse `MODULE:OBJECT`, or the name of a module of tasks. Raises HandlerLoadError."""
    module, colon, name = target.partition(":")
    if not module or (colon and not name):
        raise HandlerLoadError(
            f"{target!r} is not of the form MODULE, MODULE:FUNCTION or MODULE:WORKER; an example is "
            "mypackage.images:resize"
        )
    return ObjectReference(module, name)


def load(reference: ObjectReference) -> Any:
    """Import and return the object, or the module if the reference names no object. Raises HandlerLoadError with the
    traceback of the import."""
    with loading():
        found: Any = _script(reference) if reference.script else _module(reference.module)
    for part in reference.name.split(".") if reference.name else ():
        try:
            found = getattr(found, part)
        except AttributeError:
            where = reference.script or f"module {reference.module}"
            raise HandlerLoadError(f"{where} has no {reference.name!r}") from None
    return found


def refer_to(thing: object, module: str, name: str = "") -> ObjectReference | None:
    """Return a reference by which another process can import `thing`: by `name`, or by its name in the module. Returns
    None if there is none."""
    home = sys.modules.get(module)
    if home is None:
        return None
    if not name:
        name = next((each for each, value in vars(home).items() if value is thing), "")
    found: Any = home
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not thing or not name:
        return None
    if module not in MAIN:
        return ObjectReference(module, name)
    script = getattr(home, "__file__", None)
    if script is None:  # typed into an interpreter
        return None
    return ObjectReference("__main__", name, os.path.abspath(script), getattr(home, "__package__", None) or "")


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            advice = ""
            if "/" in name or os.sep in name or name.endswith(".py"):
                advice = f"; a module is named with dots: {_dotted(name)}"
            raise HandlerLoadError(f"module {error.name!r} not found in {os.getcwd()} or sys.path{advice}") from error
        raise HandlerLoadError(f"importing {name} failed:\n{traceback.format_exc()}") from error
    except SystemExit as error:
        raise HandlerLoadError(f"importing {name} failed: it called sys.exit({error.code!r})") from error
    except Exception as error:
        raise HandlerLoadError(f"importing {name} failed:\n{traceback.format_exc()}") from error


def _dotted(path: str) -> str:
    """Return the name of the module in this file: `shop.tasks` for `./shop/tasks.py`."""
    return path.replace(os.sep, "/").removeprefix("./").removesuffix(".py").strip("/").replace("/", ".")


def _script(reference: ObjectReference) -> ModuleType:
    """Run the script once, as multiprocessing does: under a name for which `if __name__ == "__main__"` is false."""
    name = MAIN[1]
    if reference.script in _scripts:
        return _scripts[reference.script]
    spec = spec_from_file_location(name, loader=SourceFileLoader(name, reference.script))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    if reference.package:
        module.__package__ = reference.package
    sys.modules["__main__"] = sys.modules[name] = _scripts[reference.script] = module
    try:
        spec.loader.exec_module(module)
    except SystemExit:
        pass  # as in `sys.exit(worker.run())`: everything above that line is defined
    except Exception as error:
        raise HandlerLoadError(f"running {reference.script} failed:\n{traceback.format_exc()}") from error
    return module
