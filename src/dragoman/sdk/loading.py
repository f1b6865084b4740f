"""Finding handlers by name: what `MODULE:OBJECT` means, and how a child process gets at what its parent has."""

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

_loads = 0  # so many of us are loading a module now
_scripts: dict[str, ModuleType] = {}  # that were run


class HandlerLoadError(DragomanError):
    """A handler cannot be had."""


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """Where an object is: a name in a module. If that is the main script, it is told by its file."""

    module: str
    name: str
    script: str = ""
    package: str = ""  # that the script belongs to, if it was started by `python -m`

    def __str__(self) -> str:
        return f"{self.script or self.module}:{self.name}"


@contextmanager
def loading() -> Iterator[None]:
    """While a module is loaded for what is in it, `Worker.run` returns at once: scripts call it without a guard."""
    global _loads
    _loads += 1
    try:
        yield
    finally:
        _loads -= 1


def is_loading() -> bool:
    return _loads > 0


def parse_reference(target: str) -> ObjectReference:
    """Raises CannotLoad."""
    module, colon, name = target.partition(":")
    if not colon or not module or not name:
        raise HandlerLoadError(
            f"{target!r} is not of the form MODULE:FUNCTION or MODULE:WORKER, as in mypackage.images:resize"
        )
    return ObjectReference(module, name)


def load(reference: ObjectReference) -> Any:
    """The object itself. Raises CannotLoad, with what the import said."""
    with loading():
        found: Any = _script(reference) if reference.script else _module(reference.module)
    for part in reference.name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            where = reference.script or f"module {reference.module}"
            raise HandlerLoadError(f"{where} has no {reference.name!r}") from None
    return found


def refer_to(thing: object, module: str, name: str = "") -> ObjectReference | None:
    """Where `thing` can be found again in another process: under `name`, or whatever name it has in that module."""
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
            raise HandlerLoadError(
                f"there is no module {error.name!r} here (looked in {os.getcwd()} and sys.path)"
            ) from error
        raise HandlerLoadError(f"importing {name} failed:\n{traceback.format_exc()}") from error
    except SystemExit as error:
        raise HandlerLoadError(f"importing {name} ended the process: it called sys.exit({error.code!r})") from error
    except Exception as error:
        raise HandlerLoadError(f"importing {name} failed:\n{traceback.format_exc()}") from error


def _script(reference: ObjectReference) -> ModuleType:
    """Run the script, once, as multiprocessing does: under a name for which `if __name__ == "__main__"` is not so."""
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
        pass  # as in `sys.exit(worker.run())`: all that stands above it is there
    except Exception as error:
        raise HandlerLoadError(f"running {reference.script} failed:\n{traceback.format_exc()}") from error
    return module
