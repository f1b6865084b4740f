"""Parameters of tasks, as workers declare them and as the callers of background jobs know them (R267 to R269).

A worker declares the parameters of a service as a JSON Schema object. The broker reads their names only. It never reads
payloads: a worker refuses a job with a parameter that it does not know, and the broker decides whether the job waits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, final

from dragoman.core.ids import WorkerId

MOST_PARAMETERS: Final = 256  # of one service
MOST_NAME: Final = 256  # characters
MOST_SCHEMA: Final = 8_192  # bytes of the declaration of one service, as JSON
MOST_COMPARED: Final = 16  # declarations of one service with which a new one is compared
MOST_REMEMBERED: Final = 1_000  # names of one service that workers have declared in this run
PATIENCE: Final = 86_400.0  # seconds for which a job waits for a worker that knows its parameters
FIRST_DELAY: Final = 1.0  # seconds; then a job waits as long again as it has waited
LONGEST_DELAY: Final = 60.0


@final
class Declaration:
    """Parameters that workers declare for a service."""

    __slots__ = ("names", "schema", "workers")

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema  # a JSON Schema object
        self.names: dict[str, Any] = schema["properties"]
        self.workers = 0  # connected workers that have declared it

    def has(self, names: Sequence[str]) -> bool:
        """True if all these parameters are declared."""
        return all(each in self.names for each in names)


@final
class ServiceParameters:
    """Parameters of one service. Made with the first declaration, then kept."""

    __slots__ = ("_declared", "_versions", "remembered")

    def __init__(self) -> None:
        self._declared: dict[WorkerId, Declaration] = {}  # by workers that are connected
        self._versions: list[Declaration] = []  # those that differ; most workers have one of a few
        self.remembered: dict[str, None] = {}  # names that some worker has declared in this run, the latest last

    def declare(self, worker: WorkerId, schema: dict[str, Any]) -> None:
        for declaration in self._versions[-MOST_COMPARED:]:
            if declaration.schema == schema:
                break
        else:
            declaration = Declaration(schema)
            self._versions.append(declaration)
        self.undeclare(worker)
        declaration.workers += 1
        self._declared[worker] = declaration
        for name in declaration.names:
            self.remembered.pop(name, None)
            self.remembered[name] = None
        while len(self.remembered) > MOST_REMEMBERED:
            del self.remembered[next(iter(self.remembered))]

    def undeclare(self, worker: WorkerId) -> None:
        """Forget the declaration of a worker that left, or offers the service no more. It may have none."""
        declaration = self._declared.pop(worker, None)
        if declaration is not None:
            declaration.workers -= 1
            if not declaration.workers:
                self._versions.remove(declaration)

    def knows(self, worker: WorkerId, names: Sequence[str]) -> bool:
        """True if the worker has declared these parameters."""
        declaration = self._declared.get(worker)
        return declaration is not None and declaration.has(names)

    def is_known(self, names: Sequence[str]) -> bool:
        """True if some connected worker has declared these parameters."""
        return any(each.has(names) for each in self._versions)

    def union(self) -> dict[str, Any] | None:
        """Return the declarations of all connected workers as one; where they differ, the latest. None: there are
        none."""
        merged: dict[str, Any] = {}
        properties: dict[str, Any] = {}
        for each in self._versions:
            merged |= each.schema
            properties |= each.names
        return {**merged, "properties": properties} if merged else None


def read_declaration(value: object) -> dict[str, Any]:
    """Check the declaration of one service, as JSON has it, and return it. Raises ValueError."""
    if not isinstance(value, dict) or not isinstance(value.get("properties"), dict):
        raise ValueError("the parameters of a service must be a JSON Schema object with `properties`")
    names: dict[str, Any] = value["properties"]
    if len(names) > MOST_PARAMETERS or any(len(each) > MOST_NAME for each in names):
        raise ValueError(
            f"a service has at most {MOST_PARAMETERS} parameters, with names of at most {MOST_NAME} characters"
        )
    try:
        size = len(json.dumps(value))
    except (ValueError, TypeError, RecursionError):
        size = MOST_SCHEMA + 1
    if size > MOST_SCHEMA:
        raise ValueError(f"the parameters of a service have at most {MOST_SCHEMA} bytes as JSON; leave out their types")
    return value


def is_newer(caller: Sequence[str], worker: Sequence[str], unknown: str) -> bool:
    """True if a caller knows a newer version of a task than a worker that does not know the parameter `unknown` (R268):
    it knows all parameters that the worker knows, and this one. No clock is asked."""
    return unknown in caller and all(each in caller for each in worker)
